"""Tasks of transactions that stay open for a moment: a worker that keeps up finds them with its next claim."""

import psycopg
import pytest

from pgtasks.engine import bell, cursor
from tests.claims.helpers import avalue, until
from tests.claims.rig import Rig
from tests.database import Connection

INSERT = "INSERT INTO pgtasks.tasks (name, priority) SELECT 't', %s FROM generate_series(1, %s)"


@pytest.fixture(autouse=True)
def _no_rescans(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first one, which finds the lanes, there is none that would find what a cursor has passed."""
    for pause in ("SHORT_RESCAN_S", "RESCAN_S", "SHARED_RESCAN_S"):
        monkeypatch.setattr(cursor, pause, 60.0)
    monkeypatch.setattr(bell, "DOZE_S", 60.0)


@pytest.mark.parametrize("count", [1, 3000])
@pytest.mark.parametrize("priorities", [[0], [0, 3]])
async def test_what_was_passed_a_moment_ago_is_found_by_the_next_claim(
    dsn: str, connection: Connection, count: int, priorities: list[int]
) -> None:
    """However many they are, although others were inserted and claimed before their commit; with no rescan."""
    async with await psycopg.AsyncConnection.connect(dsn) as late, Rig(dsn, concurrency=50) as rig:
        for priority in priorities:
            connection.execute(INSERT, (priority, 1))
        await rig.ran(len(priorities))
        await late.execute(INSERT, (priorities[-1], count))
        ran = len(rig.started)
        for _ in range(5):
            for priority in priorities:
                connection.execute(INSERT, (priority, 1))
                ran += 1
                await rig.ran(ran)
        rescans = rig.claimer.rescans
        assert await avalue(late, "SELECT count(*) FROM pgtasks.tasks WHERE state = 'queued'") == count
        await late.commit()
        await until(lambda: len(rig.started) == ran + count, 10.0)
        assert rig.claimer.rescans == rescans
