"""A task that comes to a sleeper starts first, and all else that its waking costs comes afterwards."""

import time
from typing import Any

import pytest

from pgtasks.engine.bell import CUT_SHORT_MAX, CUT_SHORT_S, DOZE_S, DOZE_S_RESTLESS, POLL_S, Doze
from pgtasks.model import Claimed, tasks_of
from pgtasks.store.session import Statement
from tests.claims.helpers import until
from tests.claims.rig import Rig
from tests.database import Connection


async def test_one_statement_lies_between_the_bell_and_the_handler(
    dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim; the bell is given back and the head looked at once the handler has started."""
    steps: list[str] = []
    rig = Rig(dsn)
    async with rig:
        await rig.asleep()
        await until(lambda: time.monotonic() - rig.claimer.progress_at > 0.2, hint="it does not stop looking")
        real_claim, real_start, real_release = rig.link.fetch_all, rig.executor.start, rig.bell.wake_up

        async def fetch_all(statement: Statement[Any], *rest: Any) -> list[Any]:
            found = await real_claim(statement, *rest)
            looks = "RECURSIVE" in statement.sql
            steps.append(f"{'rescan' if looks else 'claim'} {len(tasks_of(found) if looks else found)}")
            return found

        def start(queue: str, tasks: list[Claimed], *, soon: bool) -> None:
            steps.append("start soon" if soon else "start")
            real_start(queue, tasks, soon=soon)

        async def wake_up() -> None:
            steps.append(f"release {len(rig.started)}")
            await real_release()

        monkeypatch.setattr(rig.link, "fetch_all", fetch_all)
        monkeypatch.setattr(rig.executor, "start", start)
        monkeypatch.setattr(rig.bell, "wake_up", wake_up)
        connection.execute("INSERT INTO pgtasks.tasks (name) VALUES ('t')")
        await until(lambda: "rescan 0" in steps)
    assert steps[:3] == ["claim 1", "start", "release 1"]


def test_a_worker_whose_sleeps_last_falls_asleep_soon() -> None:
    """Also when some of them were cut short a while ago."""
    doze = Doze()
    for second in range(20):
        doze.slept(second * CUT_SHORT_S, second * CUT_SHORT_S + POLL_S / 2)
        doze.slept(second * CUT_SHORT_S + 1, second * CUT_SHORT_S + 1 + POLL_S * 2)
        assert doze.seconds(second * CUT_SHORT_S + 2) == DOZE_S


def test_a_worker_whose_sleeps_are_cut_short_polls_for_longer() -> None:
    """For as long as there were that many within the last seconds."""
    doze = Doze()
    for number in range(CUT_SHORT_MAX):
        assert doze.seconds(number) == DOZE_S
        doze.slept(number / 10, number / 10 + POLL_S / 2)
    assert doze.seconds(CUT_SHORT_S) == DOZE_S_RESTLESS
    assert doze.seconds(CUT_SHORT_S + 0.1) == DOZE_S
