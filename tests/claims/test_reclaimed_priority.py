"""C-04: a task that is taken back from a lost worker keeps its priority."""

from datetime import UTC, datetime

import pytest

from pgtasks.engine.executor import Executor
from pgtasks.store import session, statements
from tests.claims.helpers import claim, until
from tests.claims.rig import Rig
from tests.database import Connection, rows


async def test_it_runs_before_what_waits_with_a_lower_priority(
    dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within about a second of the sweep, although thousands of lower tasks are waiting."""
    monkeypatch.setattr(Executor, "children_free", lambda _: 1)
    connection.execute("INSERT INTO pgtasks.tasks (name, priority) VALUES ('t', 5)")
    (lost,) = claim(connection, 1, lanes=[statements.Lane(5, datetime(1970, 1, 1, tzinfo=UTC), 0)])
    connection.execute("UPDATE pgtasks.leases SET expires_at = '2001-01-01'")
    connection.execute("INSERT INTO pgtasks.tasks (name, priority) SELECT 't', 5 FROM generate_series(1, 20)")
    connection.execute("INSERT INTO pgtasks.tasks (name) SELECT 't' FROM generate_series(1, 3000)")
    async with Rig(dsn, concurrency=10, hold_s=0.01) as rig:
        await rig.ran(200)
        session.fetch_all(connection, statements.sweep(datetime(2100, 1, 1, tzinfo=UTC), limit=10))
        await until(lambda: lost.id in rig.started, 3.0)
        assert len(rig.order) < 3000
        await until(lambda: rows(connection, "SELECT attempt FROM pgtasks.history WHERE id = %s", lost.id) == [(2,)])
