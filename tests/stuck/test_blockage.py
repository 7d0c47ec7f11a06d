"""W5: who blocks the handlers' loop pays for it, its neighbours do not."""

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from pgtasks import App
from pgtasks.engine import executor as executor_module
from pgtasks.outcome import Completed, Released, RetryIn
from tests.stuck.rig import Rig


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Let handlers that block the loop go on; the watchdog gives up sooner than it does otherwise."""
    monkeypatch.setattr(executor_module, "ABANDON_S", 0.8)
    event = threading.Event()
    yield event
    event.set()


def make_app(release: threading.Event, ran: list[str]) -> App:
    """Return an app with handlers that block the loop and one that does not."""
    app = App("postgresql://nowhere")

    @app.task(timeout=0.2)
    async def blocks() -> None:
        release.wait()

    @app.task(timeout=0.2)
    async def child_blocks() -> None:
        async def block() -> None:
            release.wait()

        await asyncio.create_task(block())

    @app.task(timeout=0.2)
    async def callback_blocks() -> None:
        asyncio.get_running_loop().call_soon(release.wait)
        await asyncio.sleep(60)

    @app.task(timeout=60)
    async def blocks_a_while() -> None:
        time.sleep(1.5)  # noqa: ASYNC251 - stands for a handler that forgot to await

    add_innocent(app, ran)
    return app


def add_innocent(app: App, ran: list[str]) -> None:
    """Add handlers that block nothing."""

    # Their timeouts end while another blocks the loop.
    @app.task(timeout=0.9)
    async def neighbour() -> None:
        await asyncio.sleep(60)

    @app.task(timeout=1.2)
    async def short() -> None:
        await asyncio.sleep(0.1)

    @app.task(timeout=60)
    async def begun() -> None:
        ran.append("begun")
        await asyncio.sleep(60)

    @app.task(timeout=0.9)
    async def behind() -> None:
        ran.append("behind")

    @app.task
    async def later() -> None:
        ran.append("later")


def is_blocked(rig: Rig) -> bool:
    """Tell whether the handlers' loop has not answered for a moment."""
    runner = rig.executor._async  # noqa: SLF001 - there is no other sign of it
    return runner is not None and runner.blocked_for_s() > 0.1


@pytest.mark.parametrize("culprit", ["blocks", "child_blocks"])
async def test_a_loop_that_is_blocked_for_good_is_given_up(release: threading.Event, culprit: str) -> None:
    """The culprit timed out; its neighbours are released, begun or not, and others run on a new loop."""
    ran: list[str] = []
    rig = Rig(make_app(release, ran))
    rig.start("begun", "neighbour")
    await rig.until(lambda: ran)
    rig.start(culprit)
    await rig.until(lambda: is_blocked(rig))
    rig.start("behind")
    await rig.until(lambda: rig.executor.gave_up_loop)
    guilty = rig.outcomes.pop(culprit)
    assert isinstance(guilty, RetryIn)
    assert guilty.failure.outcome == "timed_out"
    assert rig.outcomes == dict.fromkeys(["begun", "neighbour", "behind"], Released())
    # All of them keep their slots as long as they may still run.
    assert (rig.slots.busy, rig.executor.stuck, rig.executor.running) == (4, 4, 0)
    rig.start("later")
    await rig.until(lambda: "later" in rig.outcomes)
    release.set()
    await rig.until(lambda: not rig.executor.stuck)
    assert rig.slots.busy == 0
    assert ran == ["begun", "later"], "a released task ran on"
    await rig.until(lambda: [one.name for one in threading.enumerate()].count("pgtasks-handlers") == 1)
    rig.executor.close()


async def test_time_in_which_another_blocks_the_loop_does_not_count(release: threading.Event) -> None:
    """The neighbour ends well after its timeout, and so does one that had not begun."""
    ran: list[str] = []
    rig = Rig(make_app(release, ran))
    rig.start("short", "blocks_a_while", "behind")
    await rig.until(lambda: len(rig.outcomes) == 3)
    assert {type(outcome) for outcome in rig.outcomes.values()} == {Completed}
    rig.executor.close()


async def test_where_the_culprit_is_unknown_what_had_not_begun_is_innocent(release: threading.Event) -> None:
    """A callback outside any task: whoever had begun is taken for a possible culprit."""
    ran: list[str] = []
    rig = Rig(make_app(release, ran))
    rig.start("callback_blocks")
    await rig.until(lambda: is_blocked(rig))
    rig.start("behind")
    await rig.until(lambda: rig.executor.gave_up_loop)
    assert isinstance(rig.outcomes["callback_blocks"], RetryIn)
    assert isinstance(rig.outcomes["behind"], Released)
    release.set()
    await rig.until(lambda: not rig.executor.stuck)
    rig.executor.close()
