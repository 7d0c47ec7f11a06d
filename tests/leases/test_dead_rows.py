"""N-02: what is dead in tasks and leases is not walked, whatever the statistics say of them."""

from typing import Any

import psycopg
import pytest

from pgtasks.outcome import Cancelled, Completed, Dead, RetryIn
from pgtasks.store import statements
from pgtasks.store.session import Statement
from tests.claims.helpers import ME, explain
from tests.database import Connection, rows
from tests.leases import steps

ENDED, EMPTIED = [(1, 1)], [1]
ENDS: dict[str, Statement[Any]] = {
    "complete": statements.complete(ME, ENDED, [Completed()], EMPTIED),
    "retry": statements.retry(ME, ENDED, [RetryIn(1.0, steps.FAILURE)], EMPTIED),
    "bury": statements.bury(ME, ENDED, [Dead("exhausted", steps.FAILURE)], EMPTIED),
    "cancelled": statements.cancelled(ME, ENDED, [Cancelled("no")], EMPTIED),
    "release": statements.release(ME, ENDED, [0.0], EMPTIED),
}


@pytest.mark.parametrize("end", ENDS)
def test_emptied_leases_are_found_by_their_ids(dsn: str, connection: Connection, end: str) -> None:
    """Behind an old snapshot vacuum counts no living row on many pages, and any plan looks cheap."""
    with psycopg.connect(dsn) as holder:
        holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        rows(holder, "SELECT count(*) FROM pgtasks.leases")
        rows(
            connection,
            "INSERT INTO pgtasks.leases (worker_id, expires_at, task_ids)"
            " SELECT %s, clock_timestamp(), array(SELECT generate_series(1, 400)) FROM generate_series(1, 50)",
            ME,
        )
        connection.execute("DELETE FROM pgtasks.leases")
        connection.execute("VACUUM (ANALYZE) pgtasks.leases")
        said = "SELECT reltuples = 0 AND relpages >= 25 FROM pg_class WHERE oid = 'pgtasks.leases'::regclass"
        assert rows(connection, said) == [(True,)]
        with steps.connect(dsn) as engine:
            scans = [node for node in explain(engine, ENDS[end]) if node.get("Relation Name") == "leases"]
    read = [node for node in scans if node["Node Type"] != "ModifyTable"]
    assert len(read) >= 2
    assert all("id = ANY" in node.get("Index Cond", "") for node in read), read
