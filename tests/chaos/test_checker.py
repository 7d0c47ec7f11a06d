"""The checker passes a history in which all is well, and sees what is wrong with each that is not."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.chaos import checker
from tests.chaos.history import Deed, Fire, History, Mark, Row, Sent, Try

Change = Callable[[History], Any]
SLOT = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
CLOCK = (SLOT, 1_000)


def value(task_id: int, lease_id: int) -> dict[str, Any]:
    """Return a result as handlers make it."""
    return {"task": task_id, "lease": lease_id}


def start(task_id: int, lease_id: int, at: int, *, attempt: int = 1, kind: str = "quick", pid: int = 10) -> Mark:
    """Return the line of a handler that starts."""
    return Mark("start", kind, task_id, lease_id, attempt, f"t{task_id}", pid, 1, at)


def effect(task_id: int, lease_id: int, at: int, *, attempt: int = 1, pid: int = 10) -> Mark:
    """Return the line of a handler's effect."""
    return Mark("effect", "quick", task_id, lease_id, attempt, f"t{task_id}", pid, 1, at, value(task_id, lease_id))


def completed(task_id: int, lease_id: int, *, attempt: int = 1) -> Row:
    """Return the row of a completed task."""
    return Row(task_id, "completed", "quick", attempt, 3, lease_id, f"t{task_id}", result=value(task_id, lease_id))


def marks() -> list[Mark]:
    """Return the workers' log of the good history."""
    return [
        start(1, 1, 10),
        effect(1, 1, 11),
        start(2, 2, 20, pid=20),
        start(2, 3, 25, attempt=2),
        effect(2, 3, 26, attempt=2),
        # In the log, but refused; and logged before the other's end was accepted.
        effect(2, 2, 27, pid=20),
        start(3, 4, 30),
        start(3, 5, 31, attempt=2),
        start(3, 6, 32, attempt=3),
        start(4, 7, 40),
        Mark("snooze", "quick", 4, 7, 1, "t4", 10, 1, 41),
        start(4, 8, 42),
        effect(4, 8, 43),
        start(5, 9, 50),
        Mark("start", "tick", 6, 10, 1, "", 10, 1, 60),
        Mark("effect", "tick", 6, 10, 1, "", 10, 1, 61, value(6, 10)),
        start(7, 11, 70),
        effect(7, 11, 71),
        start(8, 12, 72),
        effect(8, 12, 73),
    ]


def good() -> History:
    """Return a history with a bit of everything, in which all is well.

    1 succeeds; 2 is paused out of its lease and succeeds elsewhere, while the first worker goes on; 3 fails
    until it is dead; 4 snoozes; 5 is cancelled; 6 was fired by a schedule; 7 and 8 have one unique key.
    """
    sent = [Sent(f"t{number}", "quick", "ok", task_id=number) for number in range(1, 6)]
    sent += [Sent(f"t{number}", "quick", "ok", key="k", task_id=number) for number in (7, 8)]
    sent += [
        Sent("gone", "quick", "rolled_back"),
        Sent("who knows", "quick", "info"),
        Sent("late", "quick", "existing", key="k", task_id=7),
    ]
    return History(
        sent=sent,
        marks=marks(),
        rows=[
            completed(1, 1),
            completed(2, 3, attempt=2),
            Row(3, "dead", "quick", 3, 3, 6, "t3", reason="exhausted"),
            completed(4, 8),
            Row(5, "cancelled", "quick", 1, 3, 9, "t5"),
            Row(6, "completed", "tick", 1, 3, 10, None, result=value(6, 10), schedule="tick", fire_time=SLOT),
            replace(completed(7, 11), unique_key="k"),
            replace(completed(8, 12), unique_key="k"),
        ],
        tries=[
            Try(2, 1, 2, "worker_lost", finished_at=SLOT),
            *(Try(3, attempt, attempt + 3, "failed") for attempt in (1, 2, 3)),
            Try(5, 1, 9, "cancelled"),
        ],
        fires=[
            Fire("tick", SLOT, 6, "fired"),
            Fire("tick", SLOT + timedelta(seconds=2), None, "missed"),
        ],
        deeds=[Deed("pause", 21, 28, 20), Deed("term", 100, 200, 10, 0, alone=True)],
        cancels={5},
        periods={"tick": 2},
        clock=CLOCK,
    )


def test_nothing_is_wrong_with_a_good_history() -> None:
    """Also not with what looks wrong in a log, because its order is not that of commits."""
    assert checker.check(good()) == []


def test_an_empty_history_is_good() -> None:
    """A run in which nothing happened violates nothing."""
    assert checker.check(History()) == []


def drop(history: History, what: str, number: int) -> None:
    """Take one element out of one of a history's lists."""
    del getattr(history, what)[number]


def change(history: History, what: str, number: int, **values: Any) -> None:
    """Change one element of one of a history's lists."""
    found = getattr(history, what)
    one = found[number]
    found[number] = one._replace(**values) if hasattr(one, "_replace") else replace(one, **values)


def reword(history: History, what: str, number: int, word: str) -> None:
    """Give one element another token."""
    change(history, what, number, token=word)


def again(history: History, number: int, **values: Any) -> None:
    """Add a row like another one, but for these values."""
    history.rows.append(replace(history.rows[number], **values))


def each(*changes: Change) -> Change:
    """Return all of some changes as one."""

    def do(history: History) -> None:
        for one in changes:
            one(history)

    return do


BAD: dict[str, tuple[str, str, Change]] = {
    "lost": ("I1", "a committed task is nowhere", each(lambda h: drop(h, "rows", 0), lambda h: drop(h, "marks", 0))),
    "lost after its start": ("I1", "a task that was started is nowhere", lambda h: drop(h, "rows", 0)),
    "unfinished": (
        "I1",
        "a task has not ended after the drain",
        lambda h: change(h, "rows", 0, place="live", lease_id=None, state="queued"),
    ),
    "ghost": (
        "I2",
        "a task that was rolled back is there",
        each(lambda h: again(h, 0, id=9, attempt=1), lambda h: reword(h, "rows", -1, "gone")),
    ),
    "ghost that ran": ("I2", "a task that was rolled back ran", lambda h: reword(h, "marks", 0, "gone")),
    "made twice": (
        "I2",
        "one enqueue made several tasks",
        lambda h: again(h, 0, id=9),
    ),
    "unknown": ("I2", "a task is there that nobody enqueued", lambda h: reword(h, "rows", 0, "x")),
    "started twice": (
        "I3",
        "a handler started twice under one lease",
        lambda h: h.marks.append(start(1, 1, 12, pid=20)),
    ),
    "recorded twice": (
        "I3",
        "an attempt was recorded twice under one lease",
        lambda h: h.tries.append(Try(3, 2, 5, "failed")),
    ),
    "failed and succeeded": (
        "I3",
        "an attempt failed and succeeded under one lease",
        lambda h: h.tries.append(Try(1, 1, 1, "failed")),
    ),
    "stale completion": (
        "I4",
        "a task ended under a lease, and started again under a later one",
        lambda h: change(h, "rows", 1, lease_id=2, result=value(2, 2)),
    ),
    "completion without a lease": (
        "I4",
        "an end was accepted without a lease",
        lambda h: change(h, "rows", 1, lease_id=None),
    ),
    "stale failure": (
        "I4",
        "an end was accepted under the lease of another attempt",
        lambda h: change(h, "tries", 2, lease_id=4),
    ),
    "attempts in the wrong order": (
        "I4",
        "a later lease has an earlier attempt",
        each(lambda h: change(h, "tries", 1, attempt=2), lambda h: change(h, "tries", 2, attempt=1)),
    ),
    "two ends": ("I5", "a task has several ends", lambda h: again(h, 0)),
    "nobody cancelled it": ("I5", "a task is cancelled that nobody cancelled", lambda h: h.cancels.clear()),
    "one attempt too many": (
        "I6",
        "a task started more often than it may",
        lambda h: change(h, "rows", 2, max_attempts=2),
    ),
    "dead too early": (
        "I6",
        "a task is dead with attempts to spare, or with too many",
        lambda h: change(h, "rows", 2, max_attempts=4),
    ),
    "poison completed": (
        "I6",
        "a task that cannot succeed is completed",
        lambda h: change(h, "rows", 0, name="poison"),
    ),
    "a gap": ("I7", "the attempts of a task have gaps or repeat", lambda h: drop(h, "tries", 1)),
    "charged for a snooze": (
        "I7",
        "the attempts of a task have gaps or repeat",
        lambda h: change(h, "rows", 3, attempt=2),
    ),
    "a start that vanished": ("I7", "a start has no end", lambda h: h.marks.append(start(1, 0, 9, pid=20))),
    "fired twice": (
        "I8",
        "a slot does not have the one task that it fired",
        lambda h: again(h, 5, id=9),
    ),
    "a slot with two rows": ("I8", "a slot has several rows", lambda h: h.fires.append(h.fires[1])),
    "fired without a row": ("I8", "a task was fired for a slot without a row", lambda h: drop(h, "fires", 0)),
    "a slot left out": (
        "I8",
        "a slot between the first and the last has no row",
        lambda h: change(h, "fires", 1, fire_time=SLOT + timedelta(seconds=4)),
    ),
    "one key, two tasks": (
        "I9",
        "two tasks with one unique key lived at once",
        lambda h: change(h, "marks", 17, at=75),
    ),
    "told of another task": (
        "I9",
        "a producer was told of a task with another key",
        lambda h: change(h, "sent", -1, key="j"),
    ),
    "another result": ("I11", "a result is not that of the effect", lambda h: change(h, "rows", 0, result=value(1, 9))),
    "completed without an effect": (
        "I11",
        "a task is completed under a lease under which it had no effect",
        lambda h: drop(h, "marks", 1),
    ),
    "a bad exit": (
        "I12",
        "a worker that was asked to stop did not exit with 0",
        lambda h: change(h, "deeds", 1, code=1),
    ),
    "a slow exit": (
        "I12",
        "a worker that was asked to stop took too long",
        lambda h: change(h, "deeds", 1, ended=60 * 1_000_000_000),
    ),
    "charged for a stop": (
        "I12",
        "a task was charged for the stop of its worker",
        lambda h: change(h, "deeds", 1, pid=20),
    ),
    "leases left": ("I13", "leases are left although no task is", lambda h: setattr(h, "leases_left", 1)),
    "sighted": ("I13", "two living tasks", lambda h: h.sightings.append("two living tasks")),
    "a death without a record": (
        "I13",
        "a dead letter has no record of its last attempt",
        lambda h: change(h, "tries", 3, lease_id=99),
    ),
    "leased but not running": (
        "I13",
        "a task is running without a lease, or has one without running",
        lambda h: change(h, "rows", 0, place="live", state="queued"),
    ),
    "no end of the drain": (
        "I14",
        "the drain took too long",
        each(lambda h: setattr(h, "drain_s", 3.0), lambda h: setattr(h, "drain_s_max", 2.0)),
    ),
    "charged without a cause": (
        "I16",
        "a task was charged with the loss of a worker that nothing had struck",
        lambda h: drop(h, "deeds", 0),
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_seen(name: str) -> None:
    """Its invariant says so in its own words, with evidence."""
    invariant, sentence, spoil = BAD[name]
    history = good()
    spoil(history)
    found = [one for one in checker.check(history) if one.invariant == invariant and one.sentence.startswith(sentence)]
    assert found, checker.check(history)
    assert all(one.evidence for one in found)


def test_each_invariant_has_a_bad_history() -> None:
    """All that are checked; those that do not apply yet say why."""
    seen = {invariant for invariant, _, _ in BAD.values()}
    assert seen == {one.id for one in checker.INVARIANTS.values() if one.check is not None}
    assert all(one.why_not for one in checker.INVARIANTS.values() if one.check is None)


def test_a_fault_of_all_workers_excuses_lost_attempts() -> None:
    """Who was cut off is charged; that is no fault of the sweep."""
    history = good()
    history.deeds[0] = Deed("black_hole", 21, 28)
    assert checker.check(history) == []


def test_much_evidence_is_cut_short_and_counted() -> None:
    """A bug that strikes everywhere must not fill the terminal."""
    history = good()
    history.rows += [replace(completed(number, number), token=f"x{number}") for number in range(100, 200)]
    (found,) = [one for one in checker.check(history) if one.sentence.startswith("a task is there that nobody")]
    assert found.sentence.endswith("(100 times)")
    assert len(found.evidence) == checker.EVIDENCE_MAX
