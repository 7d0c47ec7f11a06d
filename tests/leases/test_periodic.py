"""The loop of every part: it outlives the faults of its rounds, and it ends when it is told to."""

import asyncio
import random

import pytest

from pgtasks.engine import periodic
from pgtasks.engine.periodic import Signal, repeat, wait_for_any


async def steps_later(count: int) -> None:
    """Let the loop do some rounds."""
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("rounds", range(8))
async def test_a_cancellation_is_heard_whenever_it_comes(rounds: int) -> None:
    """Also in the very moment in which a wait ends because its event was set."""
    event = Signal()

    async def wait_for_ever() -> None:
        while True:
            event.clear()
            await wait_for_any(10.0, event)

    part = asyncio.create_task(wait_for_ever())
    await steps_later(3)
    event.set()
    await steps_later(rounds)
    part.cancel()
    done, _ = await asyncio.wait({part}, timeout=1.0)
    assert done, "the cancellation was swallowed"
    assert part.cancelled()


async def test_a_wait_leaves_nothing_behind() -> None:
    """Its helpers end in the next round of the loop."""
    events = Signal(), Signal()
    events[0].set()
    before = asyncio.all_tasks()
    await wait_for_any(1.0, *events)
    events[0].clear()
    await wait_for_any(0.001, *events)
    await steps_later(2)
    assert asyncio.all_tasks() == before


# What a round may end with that does not end its part.
FAULTS: dict[str, type[BaseException]] = {"error": ValueError, "stray cancellation": asyncio.CancelledError}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_part_outlives_a_round_that_fails(fault: str, caplog: pytest.LogCaptureFixture) -> None:
    """It says so and goes on, also after a CancelledError that was not meant for it."""
    stop, rounds = Signal(), 0

    async def do_round() -> float:
        nonlocal rounds
        rounds += 1
        if rounds == 1:
            raise FAULTS[fault]
        stop.set()
        return 0.0

    await asyncio.wait_for(repeat("part", do_round, stop=stop, rng=random.Random(1)), 5)
    assert rounds == 2
    assert "part failed" in caplog.text


async def test_a_traceback_is_logged_once_and_not_in_each_round(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later lines, which get rare, say the error alone."""
    monkeypatch.setattr(periodic, "BACKOFF_S_MIN", 0.001)
    stop, rounds = Signal(), 0

    async def do_round() -> float:
        nonlocal rounds
        rounds += 1
        if rounds > 4:
            stop.set()
        raise ValueError("always")

    await asyncio.wait_for(repeat("part", do_round, stop=stop, rng=random.Random(1)), 5)
    said = [record for record in caplog.records if record.getMessage() == "part failed"]
    assert [record.exc_info is not None for record in said] == [True, False, False]
    assert [vars(record)["pgtasks"]["failures"] for record in said] == [1, 2, 4]
    assert {vars(record)["pgtasks"]["error"] for record in said} == {"always"}


async def test_a_part_that_is_cancelled_ends() -> None:
    """In the middle of a round: its task says that it was cancelled."""

    async def do_round() -> float:
        await asyncio.sleep(10)
        return 0.0

    part = asyncio.create_task(repeat("part", do_round, stop=Signal(), rng=random.Random(1)))
    await steps_later(3)
    part.cancel()
    await asyncio.wait({part}, timeout=1.0)
    assert part.cancelled()
