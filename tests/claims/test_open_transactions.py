"""Tasks of transactions that stay open for a moment: a worker that keeps up need not look from the head for them."""

import time

import psycopg
import pytest

from pgtasks.engine import bell, claimer, cursor
from tests.claims.helpers import avalue, until
from tests.claims.rig import Rig
from tests.database import Connection

INSERT = "INSERT INTO pgtasks.tasks (name, priority) SELECT 't', %s FROM generate_series(1, %s)"


@pytest.fixture(autouse=True)
def _no_rescans(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first one, which finds the lanes, there is none that would find what a cursor has passed."""
    for pause in ("SHORT_RESCAN_S", "RESCAN_S", "SHARED_RESCAN_S"):
        monkeypatch.setattr(cursor, pause, 60.0)
    monkeypatch.setattr(claimer, "DOZE_S_RESTLESS", 60.0)
    monkeypatch.setattr(bell.Doze, "seconds", lambda _self, _now: 60.0)


@pytest.mark.parametrize("count", [1, 3000])
@pytest.mark.parametrize("priorities", [[0], [0, 3]])
async def test_what_was_passed_a_moment_ago_is_found_at_once(
    dsn: str, connection: Connection, count: int, priorities: list[int]
) -> None:
    """However many they are, although others were inserted and claimed before their commit."""
    async with await psycopg.AsyncConnection.connect(dsn) as late, Rig(dsn, concurrency=50) as rig:
        for priority in priorities:
            connection.execute(INSERT, (priority, 1))
        await rig.ran(len(priorities))
        await late.execute(INSERT, (priorities[-1], count))
        ran = len(rig.started)
        for priority in priorities * 3:
            connection.execute(INSERT, (priority, 1))
            ran += 1
            await rig.ran(ran)
        rescans = rig.claimer.rescans
        assert await avalue(late, "SELECT count(*) FROM pgtasks.tasks WHERE state = 'queued'") == count
        await late.commit()
        committed = time.monotonic()
        await until(lambda: len(rig.started) > ran, 10.0)
        assert list(rig.started.values())[ran] - committed < 0.4
        await until(lambda: len(rig.started) == ran + count, 10.0)
        assert rig.claimer.rescans == rescans
