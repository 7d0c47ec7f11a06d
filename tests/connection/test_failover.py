"""A worker follows a failover to the other server of its connection string, and notices when it is led back."""

import pytest

from tests import access
from tests.chaos.cluster import Cluster
from tests.database import value, wait_until
from tests.leases import steps
from tests.leases.conftest import StartWorker


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_worker_follows_and_notices_a_split_brain(start_worker: StartWorker) -> None:
    """D-01, P5, P6: the standby is promoted under it; then the old primary comes back and stands first in the list."""
    with Cluster(standby=True, options={"fsync": "off"}) as cluster:
        access.install(cluster.dsn)
        worker = start_worker(address=cluster.workers_dsn)
        worker.wait_output("worker started")
        with cluster.admin() as admin:
            beats = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pgtasks/heartbeat/%'"
            beaten = "SELECT bool_and(last_seen_at > started_at) FROM pgtasks.workers"
            wait_until(lambda: value(admin, beats) and value(admin, beaten))
        old = cluster._primary  # noqa: SLF001 - what comes back is not in the cluster's plan
        cluster.failover()
        with cluster.admin() as admin:
            added = value(admin, """SELECT pgtasks.enqueue('tick', '{"seconds": 0}')""")
            wait_until(lambda: steps.status(admin, added) == "completed", 20, hint=worker.output)
        worker.wait_output("followed a failover")
        old.start()
        cluster.terminate_all()
        worker.wait_output("connected to a strange server", 20)
    assert "an older timeline than before: 1 after 2" in worker.output()
