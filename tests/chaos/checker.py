"""The invariants, as pure functions from a history to its violations.

All of them are *order-robust*. The order of a log is not the order of commits: a worker whose retry
was accepted logs that after another worker has begun the next attempt. So nothing here compares the
time of a write with the time of a line about it. What is compared:

- which lease an end was accepted under, which the row itself says. The lease id is the fencing
  token; it grows with every claim, so of one task a larger one was claimed later;
- two lines of which one must be there before the other can be written: a handler's start comes
  after the commit of its claim, an accepted end after the handler's last line;
- rows of one snapshot.

I10 (limits on concurrency over all workers) and I15 (workflows) are not checked, because pgtasks has
neither yet; they are listed, so that a report says so.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, NamedTuple, cast

from tests.apps.chaos import HOPELESS, POISONOUS
from tests.chaos.history import NS, Fire, History, Mark, Row, Try

EVIDENCE_MAX = 5
# Outcomes that charge no attempt and leave no row.
UNCHARGED = frozenset({"Snoozed", "Released"})
EXIT_S_MAX = 10.0


class Violation(NamedTuple):
    """One way in which an invariant does not hold."""

    invariant: str
    sentence: str
    evidence: tuple[str, ...]


Finding = tuple[str, object]
Check = Callable[[History], Iterator[Finding]]


@dataclass(frozen=True)
class Invariant:
    """What must hold; without a check it does not apply yet, and `why_not` says why."""

    id: str
    title: str
    check: Check | None
    why_not: str = ""


def check(history: History) -> list[Violation]:
    """Give every violation: one for each sentence, with the first pieces of its evidence."""
    found: list[Violation] = []
    for invariant in INVARIANTS.values():
        if invariant.check is None:
            continue
        evidence: defaultdict[str, list[str]] = defaultdict(list)
        for sentence, piece in invariant.check(history):
            evidence[sentence].append(shown(piece))
        for sentence, pieces in evidence.items():
            said = f"{sentence} ({len(pieces)} times)" if len(pieces) > 1 else sentence
            found.append(Violation(invariant.id, said, tuple(pieces[:EVIDENCE_MAX])))
    return found


def shown(piece: object) -> str:
    """Give a piece of evidence as text, without what it does not say."""
    if isinstance(piece, Row | Try | Fire):
        values = {name: value for name, value in asdict(piece).items() if value is not None}
        return f"{type(piece).__name__}({', '.join(f'{name}={value}' for name, value in values.items())})"
    if type(piece) in {tuple, list}:
        return "; ".join(map(shown, cast("tuple[object, ...]", piece)))
    return str(piece)


def nothing_lost(history: History) -> Iterator[Finding]:
    """I1: each committed task is there, and after the drain it has ended."""
    for sent in history.sent:
        if sent.status == "ok" and not history.rows_by_token.get(sent.token):
            yield "a committed task is nowhere", sent
    for task_id, starts in history.starts_of.items():
        if task_id not in history.rows_of:
            yield "a task that was started is nowhere", starts[-1]
    for row in history.rows:
        if row.place == "live":
            yield "a task has not ended after the drain", row


def no_ghosts(history: History) -> Iterator[Finding]:
    """I2: what was rolled back never runs, and nothing is there twice or that nobody enqueued."""
    status = {sent.token: sent.status for sent in history.sent}
    seen = {mark.token: mark for mark in history.marks if mark.token}
    for token, rows in history.rows_by_token.items():
        if status.get(token) == "rolled_back":
            yield "a task that was rolled back is there", rows[0]
        if len({row.id for row in rows}) > 1:
            yield "one enqueue made several tasks", rows
    for token, mark in seen.items():
        if status.get(token) == "rolled_back":
            yield "a task that was rolled back ran", mark
    for token in (seen.keys() | history.rows_by_token.keys()) - status.keys():
        yield "a task is there that nobody enqueued", token


def one_claim(history: History) -> Iterator[Finding]:
    """I3: each claim starts its task once, in one process, and has one end."""
    for key, count in Counter((mark.task_id, mark.lease_id) for mark in history.starts).items():
        if count > 1:
            yield "a handler started twice under one lease", history.marks_of[key]
    for (task_id, _), count in Counter((one.task_id, one.lease_id) for one in history.tries).items():
        if count > 1:
            yield "an attempt was recorded twice under one lease", history.tries_of[task_id]
    for row in _of(history, "completed"):
        if any(one.lease_id == row.lease_id for one in history.tries_of.get(row.id, ())):
            yield "an attempt failed and succeeded under one lease", row


def fenced(history: History) -> Iterator[Finding]:
    """I4: no end is accepted under a lease that had ended."""
    for row in _of(history, "completed", "dead"):
        later = [mark for mark in history.starts_of.get(row.id, ()) if mark.lease_id > (row.lease_id or 0)]
        if row.lease_id is None:
            yield "an end was accepted without a lease", row
        elif later:
            yield "a task ended under a lease, and started again under a later one", (row, later[-1])
    numbers = {(mark.task_id, mark.lease_id): mark.attempt for mark in history.starts}
    ended: list[Try | Row] = [*history.tries, *_of(history, "completed", "dead")]
    for one in ended:
        task_id = one.task_id if isinstance(one, Try) else one.id
        if numbers.get((task_id, one.lease_id or 0), one.attempt) != one.attempt:
            yield "an end was accepted under the lease of another attempt", one
    for tries in history.tries_of.values():
        ordered = sorted(tries, key=lambda one: one.lease_id)
        if [one.attempt for one in ordered] != sorted(one.attempt for one in tries):
            yield "a later lease has an earlier attempt", ordered


def single_end(history: History) -> Iterator[Finding]:
    """I5: a task ends once: completed, cancelled because somebody asked for it, or dead."""
    for rows in history.rows_of.values():
        if len(rows) > 1:
            yield "a task has several ends", rows
    for row in _of(history, "cancelled"):
        if row.id not in history.cancels:
            yield "a task is cancelled that nobody cancelled", row


def bounded(history: History) -> Iterator[Finding]:
    """I6: a task starts at most `max_attempts` times, crashes included, and ends dead then."""
    for row in history.rows:
        starts = history.starts_of.get(row.id, [])
        charged = [mark for mark in starts if (mark.task_id, mark.lease_id) in history.ends]
        if len(charged) > row.max_attempts or any(mark.attempt > row.max_attempts for mark in starts):
            yield "a task started more often than it may", (row, len(charged))
        if row.place == "dead" and row.reason != "permanent" and row.attempt != row.max_attempts:
            yield "a task is dead with attempts to spare, or with too many", row
        if row.place == "completed" and row.name in HOPELESS:
            yield "a task that cannot succeed is completed", row


def gap_free(history: History) -> Iterator[Finding]:
    """I7: each attempt up to the last has its record, and each start its end."""
    for row in history.rows:
        numbers = sorted(one.attempt for one in history.tries_of.get(row.id, ()))
        allowed = {
            "completed": [row.attempt - 1],
            "dead": [row.attempt],
            "cancelled": [row.attempt - 1, row.attempt],
            "live": [row.attempt - 1, row.attempt],
        }[row.place]
        if not any(numbers == [*range(1, last + 1)] for last in allowed):
            yield "the attempts of a task have gaps or repeat", (row, f"recorded: {numbers}")
        elif row.place != "live":
            yield from (("a start has no end", mark) for mark in _endless(history, row))


def _endless(history: History, row: Row) -> list[Mark]:
    """Give the starts of a finished task that were neither charged nor given back."""
    stopped = [deed.pid for deed in history.deeds if deed.what == "term" and deed.pid is not None]
    return [
        mark
        for mark in history.starts_of.get(row.id, ())
        if (mark.task_id, mark.lease_id) not in history.ends
        and not any(pid in {mark.pid, mark.parent} for pid in stopped)
        and not any(
            other.value in UNCHARGED or other.event == "snooze"
            for other in history.marks_of[mark.task_id, mark.lease_id]
            if other.event in {"outcome", "snooze"}
        )
    ]


def cron_once(history: History) -> Iterator[Finding]:
    """I8: each slot of a schedule has one row, and a fired one has one task."""
    of_slot: defaultdict[tuple[str, Any], list[Row]] = defaultdict(list)
    for row in history.rows:
        if row.schedule is not None:
            of_slot[row.schedule, row.fire_time].append(row)
    slots: defaultdict[str, list[Any]] = defaultdict(list)
    for fire in history.fires:
        slots[fire.schedule].append(fire.fire_time)
        tasks = [row.id for row in of_slot.pop((fire.schedule, fire.fire_time), [])]
        if tasks != ([fire.task_id] if fire.outcome == "fired" else []):
            yield "a slot does not have the one task that it fired", (fire, tasks)
    for rows in of_slot.values():
        yield "a task was fired for a slot without a row", rows
    for name, times in slots.items():
        period_s = history.periods.get(name, 0)
        if len(times) > len(set(times)):
            yield "a slot has several rows", name
        span_s = round((max(times) - min(times)).total_seconds())
        if period_s and len(set(times)) != span_s // period_s + 1:
            yield "a slot between the first and the last has no row", (name, f"{len(times)} rows in {span_s} s")


def unique(history: History) -> Iterator[Finding]:
    """I9: of the tasks with one key one lives at a time, and who is told of a living task is told its id.

    Two tasks lived at once if the later one started before the earlier one had its effect: a start
    comes after the commit of the insert, which comes after that of the earlier one's end.
    """
    keys = {sent.token: sent.key for sent in history.sent if sent.key is not None}
    of_key: defaultdict[str, list[Row]] = defaultdict(list)
    for row in history.rows:
        if row.token in keys:
            of_key[keys[row.token] or ""].append(row)
    for key, rows in of_key.items():
        spans = sorted(span for row in rows if (span := _span(history, row)) is not None)
        for (_, end, one), (start, _, other) in pairwise(spans):
            if start < end:
                yield "two tasks with one unique key lived at once", (key, one, other)
    of_id = {row.id: row for rows in of_key.values() for row in rows}
    for sent in history.sent:
        if sent.status == "existing" and getattr(of_id.get(sent.task_id or 0), "unique_key", sent.key) != sent.key:
            yield "a producer was told of a task with another key", sent


def _span(history: History, row: Row) -> tuple[int, int, int] | None:
    """Give when a completed task certainly lived: from its first start to the effect that was accepted."""
    starts, done = history.starts_of.get(row.id), history.effects.get((row.id, row.lease_id or 0))
    if row.place != "completed" or not starts or done is None:
        return None
    return min(mark.at for mark in starts), done.at, row.id


def results_agree(history: History) -> Iterator[Finding]:
    """I11: what is completed was done, under the lease it was accepted with, and has that result."""
    for row in _of(history, "completed"):
        done = history.effects.get((row.id, row.lease_id or 0))
        if done is None:
            yield "a task is completed under a lease under which it had no effect", row
        elif done.value != row.result:
            yield "a result is not that of the effect", (row, done)


def clean_stop(history: History) -> Iterator[Finding]:
    """I12: SIGTERM ends a worker in time, with exit code 0, and charges nobody for it.

    Left out are stops in which something else strikes, also a task that kills its own process.
    """
    lost = {(one.task_id, one.lease_id): one for one in history.tries if one.outcome == "worker_lost"}
    poisoned = {mark.pid for mark in history.starts if mark.kind in POISONOUS}
    for deed in history.deeds:
        if deed.what != "term" or not deed.alone or deed.pid is None or deed.pid in poisoned:
            continue
        if deed.code != 0:
            yield "a worker that was asked to stop did not exit with 0", deed
        if (deed.ended - deed.began) / NS > history.grace_s + EXIT_S_MAX:
            yield "a worker that was asked to stop took too long", deed
        for mark in history.starts:
            charge = lost.get((mark.task_id, mark.lease_id))
            if charge is None or not mark.of(deed.pid) or mark.kind in POISONOUS:
                continue
            # What it had lost before was lost for another reason.
            if history.at(charge.finished_at) >= deed.began:
                yield "a task was charged for the stop of its worker", (mark, charge)


def structure(history: History) -> Iterator[Finding]:
    """I13: running means leased, in each snapshot; in the end no lease is left, and each death has its record."""
    yield from ((sighting, "seen in a snapshot during the run") for sighting in history.sightings)
    if history.leases_left and not any(row.place == "live" for row in history.rows):
        yield "leases are left although no task is", history.leases_left
    recorded = {(one.task_id, one.lease_id) for one in history.tries}
    for row in history.rows:
        if row.place == "live" and (row.state == "running") != (row.lease_id is not None):
            yield "a task is running without a lease, or has one without running", row
        if row.place == "dead" and row.lease_id is not None and (row.id, row.lease_id) not in recorded:
            yield "a dead letter has no record of its last attempt", row


def alive_again(history: History) -> Iterator[Finding]:
    """I14: after the last fault the work is done in bounded time."""
    if history.drain_s > history.drain_s_max:
        yield "the drain took too long", f"{history.drain_s:.1f} s of {history.drain_s_max:.1f} s"


def no_groundless_charge(history: History) -> Iterator[Finding]:
    """I16: only the loss of a worker loses attempts, as long as nothing strikes all workers at once."""
    if any(deed.pid is None for deed in history.deeds):
        return
    struck = {deed.pid for deed in history.deeds if deed.what in {"kill", "pause"}}
    struck |= {pid for mark in history.starts if mark.kind in POISONOUS for pid in (mark.pid, mark.parent)}
    for one in history.tries:
        if one.outcome == "worker_lost" and one.name not in POISONOUS:
            for mark in history.marks_of.get((one.task_id, one.lease_id), [])[:1]:
                if not {mark.pid, mark.parent} & struck:
                    yield "a task was charged with the loss of a worker that nothing had struck", (one, mark)


def _of(history: History, *places: str) -> list[Row]:
    return [row for row in history.rows if row.place in places]


_ALL = (
    Invariant("I1", "no committed task is lost", nothing_lost),
    Invariant("I2", "nothing runs that was rolled back", no_ghosts),
    Invariant("I3", "one start and one end per claim", one_claim),
    Invariant("I4", "ends are fenced by the lease", fenced),
    Invariant("I5", "a task ends once", single_end),
    Invariant("I6", "starts are bounded", bounded),
    Invariant("I7", "attempts are free of gaps", gap_free),
    Invariant("I8", "cron fires once", cron_once),
    Invariant("I9", "one living task per unique key", unique),
    Invariant("I10", "limits over all workers", None, "there are no limits over all workers yet"),
    Invariant("I11", "results agree with effects", results_agree),
    Invariant("I12", "a stop is clean", clean_stop),
    Invariant("I13", "rows are consistent", structure),
    Invariant("I14", "work goes on after faults", alive_again),
    Invariant("I15", "workflows", None, "there are no workflows yet"),
    Invariant("I16", "nobody is charged without a cause", no_groundless_charge),
)
INVARIANTS = {invariant.id: invariant for invariant in _ALL}
