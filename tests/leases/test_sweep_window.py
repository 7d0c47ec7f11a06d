"""When a sweep is safe: never while other live workers may not have been able to renew yet."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from pgtasks.engine.heartbeat import BEATS_PER_LEASE, SweepWindow

I_S = 10.0  # The beat interval.
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """Return a time of the database's clock."""
    return NOON + timedelta(seconds=seconds)


def window(*beats: float) -> SweepWindow:
    """Return the window of a worker that has beaten at these times."""
    made = SweepWindow(I_S)
    for beat in beats:
        made.beat(at(beat))
    return made


def test_a_worker_that_has_just_started_does_not_sweep() -> None:
    """It does not know whether the database has just come back from a stall."""
    assert window().fresh_until() is None
    assert window(0).fresh_until() is None
    assert window(0, 7.4).fresh_until() is None


def test_regular_beats_keep_the_window_open() -> None:
    """The second beat opens it, and each one moves its end."""
    assert window(0, 9).fresh_until() == at(9 + 15)
    assert window(0, 9, 18.5, 28.5).fresh_until() == at(28.5 + 15)


def test_a_gap_closes_the_window_for_one_beat() -> None:
    """Whoever was cut off, or met a stall, lets the others renew first."""
    assert window(0, 9, 24.1).fresh_until() is None
    assert window(0, 9, 24.1, 33.1).fresh_until() == at(33.1 + 15)


def test_a_clock_that_jumps_closes_the_window() -> None:
    """Backwards as forwards: a new server's clock says nothing about old leases."""
    assert window(0, 9, 4).fresh_until() is None
    assert window(0, 9, 3600).fresh_until() is None


@dataclass
class Worker:
    """A live worker with one lease, in a world of seconds."""

    window: SweepWindow = field(default_factory=lambda: SweepWindow(I_S))
    expires: float = 0.0
    next_beat: float = 0.0


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    offsets=st.lists(st.floats(0, I_S), min_size=2, max_size=4),
    stalls=st.lists(st.tuples(st.floats(5, 60), st.floats(0.1, 100)), min_size=1, max_size=4),
    data=st.data(),
)
def test_no_live_lease_is_swept_whatever_stalls(
    offsets: list[float], stalls: list[tuple[float, float]], data: st.DataObject
) -> None:
    """Workers beat every 0.9 to 1 interval; in a stall their beats and sweeps wait, then come in any order."""
    pace = st.floats(0.9, 1.0)
    late = st.floats(0.0, 0.25)  # A failed beat is tried again within a quarter of the interval.
    workers = [Worker(next_beat=offset) for offset in offsets]
    down: list[tuple[float, float]] = []
    begin = 2 * I_S
    for pause, length in stalls:
        begin += pause
        down.append((begin, begin + length))
        begin += length

    def end_of_stall(time: float) -> float | None:
        return next((end for start, end in down if start <= time < end), None)

    while (worker := min(workers, key=lambda one: one.next_beat)).next_beat < begin + 5 * I_S:
        now = worker.next_beat
        back = end_of_stall(now)
        if back is not None:
            worker.next_beat = back + I_S * data.draw(late)
            continue
        worker.window.beat(at(now))
        worker.expires = now + BEATS_PER_LEASE * I_S
        worker.next_beat = now + I_S * data.draw(pace)
        assert_harmless(worker, workers, until=min(one.next_beat for one in workers), down=end_of_stall)


def assert_harmless(
    sweeper: Worker, workers: list[Worker], *, until: float, down: Callable[[float], float | None]
) -> None:
    """Check that none of the sweeps that this worker may do before the next event takes a live lease."""
    fresh_until = sweeper.window.fresh_until()
    if fresh_until is None:
        return
    limit = (fresh_until - NOON).total_seconds()
    # Sent now, it is executed at the latest before the next beat, or as the first thing after a stall.
    moment = down(until) or min(until, limit)
    if moment <= limit:
        taken = [one for one in workers if one.expires and one.expires < moment]
        assert not taken, f"a sweep at {moment} takes the lease that ended at {taken[0].expires}"
