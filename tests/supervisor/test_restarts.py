"""What becomes of a place whose process has ended, and what the supervisor's exit code is."""

import random

import pytest

from pgtasks.engine.restarts import DELAY_S_MAX, End, Restart, Retire, after_end, exit_code, is_hopeless

RNG = random.Random(1)


def decide(
    code: int,
    *,
    lived_s: float = 1.0,
    begun: bool = True,
    short_lives: int = 0,
    proven: bool = True,
    draining: bool = False,
) -> Restart | Retire:
    """Decide about one end."""
    end = End(code, lived_s, begun=begun, short_lives=short_lives)
    return after_end(end, proven=proven, draining=draining, rng=RNG)


def delay_s(decision: Restart | Retire) -> float:
    """Give the delay of a restart."""
    assert isinstance(decision, Restart)
    return decision.delay_s


@pytest.mark.parametrize("code", [-9, -11, 1, 7, 4, 0])
def test_who_dies_young_again_and_again_is_followed_later_and_later(code: int) -> None:
    """1, 2, 4, 8, 16, then 30 s, each a fifth more or less; a life of ten seconds forgives all."""
    for short_lives, expected_s in enumerate([1, 2, 4, 8, 16, 30, 30]):
        decision = decide(code, short_lives=short_lives)
        assert expected_s * 0.8 <= delay_s(decision) <= min(expected_s * 1.2, DELAY_S_MAX)
        assert decision == Restart(delay_s(decision), short_lives + 1)
    assert decide(code, lived_s=10.0, short_lives=6) == Restart(0.0, 0)
    assert delay_s(decide(code, short_lives=10**6)) <= DELAY_S_MAX


def test_who_asks_to_be_replaced_is_replaced_at_once() -> None:
    """Only a worker can ask: a process that ends so while it starts has not."""
    assert decide(75, short_lives=3) == Restart(0.0, 0)
    assert delay_s(decide(75, begun=False)) > 0


def test_a_drain_that_is_done_or_given_up_is_not_begun_again() -> None:
    """One that a signal ended, or a crash of a handler, is."""
    assert decide(0, draining=True) == Retire()
    assert decide(1, draining=True, lived_s=100) == Retire()
    assert delay_s(decide(-9, draining=True)) > 0
    assert delay_s(decide(7, draining=True)) > 0


@pytest.mark.parametrize("code", [0, 1, 2, 4, 5])
def test_an_error_at_the_first_start_is_final(code: int) -> None:
    """As without a supervisor, whatever the code; but not a signal, which says nothing about the command."""
    assert decide(code, begun=False, proven=False) == Retire()
    assert delay_s(decide(-9, begun=False, proven=False)) > 0


def test_only_when_no_place_can_have_a_worker_all_is_given_up() -> None:
    """2 and 5 are for good; a database that is away (4) is not."""
    assert is_hopeless([2, 5])
    assert not is_hopeless([2, None])
    assert not is_hopeless([5, 4])
    assert not is_hopeless([5, 0])


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([0, 0], 0),
        ([0, None], 0),
        ([75, 0], 0),
        ([0, 1], 1),
        ([-9, 0], 1),
        ([7, 0], 1),
        ([1, 4], 4),
        ([4, 2], 2),
        ([2, 130], 130),
    ],
)
def test_the_exit_code_is_the_worst_of_the_last(codes: list[int | None], expected: int) -> None:
    """0 when all ended with it; a code that says what is wrong beats one that does not."""
    assert exit_code(codes, interrupted=False) == expected
    assert exit_code(codes, interrupted=True) == 130


def test_signals_are_named() -> None:
    """A name for those that have one."""
    ends = [End(code, 1.0, begun=True, short_lives=0) for code in (-9, -63, 3)]
    assert [end.signal_name for end in ends] == ["SIGKILL", "signal 63", None]
