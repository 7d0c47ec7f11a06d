"""R-01: how attempts are counted, and when they are used up."""

import random

import pytest

from pgtasks import Retry, TaskTimeout
from pgtasks.outcome import Dead, Failure, RetryIn, decide
from tests.database import rows, value, wait_until
from tests.handlers.conftest import Tasks


def test_a_failing_task_runs_exactly_as_often_as_allowed(tasks: Tasks) -> None:
    """R-01: N runs, numbered 1..N, the last one knows that it is, the hook for the dead runs once."""
    added = {limit: tasks.add("always_fails", max_attempts=limit) for limit in (1, 3, 10)}
    by_policy = tasks.add("always_fails")
    tasks.drain()
    for limit, task_id in [*added.items(), (3, by_policy)]:
        runs = rows(
            tasks.connection,
            "SELECT attempt, last, word FROM public.notes WHERE task_id = %s ORDER BY at, word",
            task_id,
        )
        assert [run for run in runs if not run[2]] == [(n, n == limit, "") for n in range(1, limit + 1)]
        assert [run for run in runs if run[2]] == [(limit, True, "dead: exhausted")]
        assert tasks.dead(task_id) == ("exhausted", limit, "always")
        assert [attempt for attempt, *_ in tasks.attempts(task_id)] == [*range(1, limit + 1)]


def test_a_permanent_error_ends_a_task_in_its_first_run(tasks: Tasks) -> None:
    """R-01: whatever attempts are left."""
    task_id = tasks.add("permanent", max_attempts=10)
    tasks.drain()
    assert tasks.notes(task_id) == ["", "dead: permanent"]
    assert tasks.dead(task_id) == ("permanent", 1, "for good")


def test_retry_later_is_honoured_and_consumes_an_attempt(tasks: Tasks) -> None:
    """R-01: the delay is the asked one, and with two attempts the second failure would be the last."""
    task_id = tasks.add("later", {"delay": 1.5})
    tasks.drain()
    assert tasks.attempts(task_id) == [(1, "failed", "pgtasks.errors.RetryLater", "not yet")]
    first, second = rows(tasks.connection, "SELECT attempt, last, extract(epoch FROM at)::float FROM public.notes")
    assert (first[:2], second[:2]) == ((1, False), (2, True))
    assert 1.5 <= second[2] - first[2] < 2.5


def test_a_hundred_snoozes_charge_nothing(tasks: Tasks) -> None:
    """R-01: even with a single attempt, and no failure is recorded."""
    task_id = tasks.add("snoozes", {"times": 120})
    tasks.drain()
    assert tasks.status(task_id) == "completed"
    runs = rows(tasks.connection, "SELECT DISTINCT attempt, last FROM public.notes")
    assert runs == [(1, True)]
    assert value(tasks.connection, "SELECT count(*) FROM public.notes") == 121
    assert tasks.attempts(task_id) == []
    assert value(tasks.connection, "SELECT attempt FROM pgtasks.history") == 1


def test_a_limit_lowered_below_the_attempts_made_ends_with_the_next_failure(tasks: Tasks) -> None:
    """R-01: nothing negative, no further run."""
    task_id = tasks.add("always_fails", attempt=5, max_attempts=2)
    tasks.drain()
    assert tasks.notes(task_id) == ["", "dead: exhausted"]
    assert tasks.dead(task_id) == ("exhausted", 6, "always")


def test_a_replayed_dead_letter_gets_fresh_attempts(tasks: Tasks) -> None:
    """R-01: N runs again, under the same id."""
    task_id = tasks.add("always_fails", max_attempts=2)
    tasks.drain()
    assert value(tasks.connection, "SELECT pgtasks.retry(%s)", task_id) == "replayed"
    tasks.drain()
    assert tasks.notes(task_id) == ["", "", "dead: exhausted"] * 2
    assert [attempt for attempt, *_ in tasks.attempts(task_id)] == [1, 2, 1, 2]
    assert tasks.dead(task_id) == ("exhausted", 2, "always")


def test_a_task_of_any_attempt_number_goes_back_to_the_queue(tasks: Tasks) -> None:
    """R-02: due within the cap, and the worker lives; only where no number is left it is dead."""
    most = 2147483647
    numbers = (0, 30, 31, 32, 38, 43, 44, 63, 64, 1023, 1024, most - 2)
    added = [tasks.add("always_fails", attempt=number, max_attempts=most) for number in numbers]
    spent = tasks.add("always_fails", attempt=most - 1, max_attempts=most)
    with tasks.worker("--concurrency", "1") as worker:
        wait_until(lambda: all(tasks.attempts(task_id) for task_id in added))
        tasks.wait_status(spent, "dead")
        late = "SELECT id FROM pgtasks.tasks WHERE run_at > clock_timestamp() + interval '0.05 s'"
        assert rows(tasks.connection, late) == []
        assert worker.running
    assert tasks.dead(spent) == ("exhausted", most, "always")


@pytest.mark.parametrize("jitter", [True, False])
def test_delays_grow_to_the_cap_and_stay_there(jitter: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """R-02: above zero, at most the cap, monotonic without jitter, at any attempt number."""
    rng = random.Random(1)
    policy = Retry(base=1, factor=2, cap=3600, jitter=jitter)
    numbers = (0, 1, 2, 12, 13, 30, 31, 32, 38, 43, 44, 63, 64, 1023, 1024, 2147483646)
    delays = [policy.delay_s(number, rng) for number in numbers]
    assert all(0 < delay <= 3600 for delay in delays)
    bounds = [policy.bound_s(number) for number in numbers]
    assert bounds == sorted(bounds)
    assert (bounds[1], round(bounds[2], 9), bounds[-1]) == (1, 2, 3600)
    if not jitter:
        assert delays == bounds


@pytest.mark.parametrize(
    ("policy", "error", "dead"),
    [
        (Retry(never_on=(ValueError,)), ValueError(), True),
        (Retry(never_on=(ValueError,)), KeyError(), False),
        (Retry(on=(OSError,)), ConnectionError(), False),
        (Retry(on=(OSError,)), KeyError(), True),
        (Retry(on=(OSError,)), TaskTimeout(), False),
        (Retry(on=OSError), OSError(), False),  # type: ignore[arg-type]  # one class alone is understood too
    ],
)
def test_a_policy_says_which_errors_are_worth_another_try(policy: Retry, error: BaseException, dead: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """A timeout always is."""
    failure = Failure("x", "y", "z")
    outcome = decide(error, failure, attempt=1, max_attempts=2, policy=policy, rng=random.Random(1))
    assert isinstance(outcome, Dead if dead else RetryIn)
