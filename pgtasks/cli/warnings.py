"""What `status` warns about, and what to do about each."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from typing import Any

from pgtasks.cli.amounts import age, number
from pgtasks.cli.escape import shortened
from pgtasks.cli.options import as_typed
from pgtasks.settings import STUCK_ADVICE
from pgtasks.store.overview import Overview
from pgtasks.store.schedule_reading import TroubleRow

KIND_WARNINGS_MAX = 5
SHOWN_CHARACTERS_MAX = 60
PROBLEM_CHARACTERS_MAX = 300


@dataclass(frozen=True, slots=True)
class Warned:
    """One warning: its kind and facts for programs, its message for people."""

    kind: str
    message: str
    facts: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Give it as an object of a JSON document."""
        return {"kind": self.kind, "message": self.message, **self.facts}


def warnings_of(overview: Overview) -> list[Warned]:
    """Give everything that deserves a look, the most urgent kinds first."""
    return [
        *_first(_lost_workers(overview)),
        *_first(_quarantined(overview)),
        *_first(_stuck_handlers(overview)),
        *_first(_unserved_queues(overview)),
        *_first(_unknown_names(overview)),
        *_first(_schedule_problems(overview)),
        *_first(_overdue_schedules(overview)),
        *_first(_unknown_tasks(overview)),
        *_first(_paused_queues(overview)),
        *_first(_stuck_listeners(overview)),
        *_first(_old_transactions(overview)),
        *_first(_missing_partitions(overview)),
    ]


def _first(warnings: Iterator[Warned]) -> Iterator[Warned]:
    """Give the first few of a kind and say how many more there are: a full screen says less."""
    yield from islice(warnings, KIND_WARNINGS_MAX)
    rest = list(warnings)
    if rest:
        message = f"{len(rest):,} more warnings like that: {rest[0].kind.replace('_', ' ')}"
        yield Warned("more", message, {"of_kind": rest[0].kind, "count": len(rest)})


def _lost_workers(overview: Overview) -> Iterator[Warned]:
    now = overview.server.now
    for row in overview.lost:
        name = row.name or str(row.worker_id)
        seen = "" if row.last_seen_at is None else f", last seen {age((now - row.last_seen_at).total_seconds())} ago"
        yield Warned(
            "expired_leases",
            f"worker {name}{seen}: {_count(row.leases, 'lease')} expired, holding {_count(row.tasks, 'task')} — "
            "a live worker takes them back within its sweep interval; start one if none runs",
            {
                "worker_id": row.worker_id,
                "worker": row.name,
                "leases": row.leases,
                "tasks": row.tasks,
                "last_seen_at": row.last_seen_at,
            },
        )


def _quarantined(overview: Overview) -> Iterator[Warned]:
    for row in overview.suspects:
        yield Warned(
            "quarantine",
            f"queue {_brief(row.queue)}: {_count(row.tasks, 'task')} {_brief(row.name)} lost the process that ran "
            f"{'it' if row.tasks == 1 else 'them'} ({_count(row.losses, 'time')} in a row at most) — each runs by "
            "itself in a child process until it ends; the dead letters and attempts say which is to blame",
            {"queue": row.queue, "task": row.name, "tasks": row.tasks, "losses": row.losses},
        )


def _stuck_handlers(overview: Overview) -> Iterator[Warned]:
    for worker in overview.workers:
        if worker.stuck:
            yield Warned(
                "stuck_handlers",
                f"worker {worker.name}: {_count(worker.stuck, 'handler')} ignored the stop after a timeout or a "
                f"cancellation and {'holds its slot' if worker.stuck == 1 else 'hold their slots'} (of "
                f"{worker.slots:,}) — {STUCK_ADVICE}",
                {"worker_id": worker.id, "worker": worker.name, "stuck": worker.stuck, "slots": worker.slots},
            )


def _unserved_queues(overview: Overview) -> Iterator[Warned]:
    for queue in overview.queues:
        if queue.workers or queue.oldest_waiting_since is None:
            continue
        waited = (overview.server.now - queue.oldest_waiting_since) / timedelta(seconds=1)
        yield Warned(
            "unserved_queue",
            f"queue {_brief(queue.queue)}: tasks wait (the oldest for {age(waited)}) and no live worker serves it — "
            f"start one: pgtasks worker MODULE:APP -q {shlex.quote(queue.queue)}",
            {"queue": queue.queue, "oldest_waiting_s": round(waited, 3)},
        )


def _unknown_names(overview: Overview) -> Iterator[Warned]:
    known = _known_names(overview)
    for one in overview.waiting:
        if one.name in known[one.queue]:
            continue
        yield Warned(
            "unknown_name",
            f"no worker knows this: {_brief(one.name)} ({number(one.tasks, estimated=one.estimated)} waiting in queue "
            f"{_brief(one.queue)}) — start a worker whose app has that task, or cancel them: "
            f"pgtasks tasks cancel --name={shlex.quote(one.name)} --queue={shlex.quote(one.queue)}",
            {"queue": one.queue, "name": one.name, "waiting": one.tasks, "estimated": one.estimated},
        )


def _known_names(overview: Overview) -> dict[str, set[str]]:
    """Give the names that the live workers of each queue with waiting tasks know.

    Where none serves a queue, which is a warning of its own, a name counts as known when any
    worker has ever registered it.
    """
    registered = {row.name for row in overview.registered}
    for worker in overview.workers:
        registered.update(worker.names)
    serving: dict[str, set[str]] = {}
    for worker in overview.workers:
        for queue in worker.queues if worker.alive else ():
            serving.setdefault(queue, set()).update(worker.names)
    return {queue: serving.get(queue, registered) for queue in {one.queue for one in overview.waiting}}


def _schedule_problems(overview: Overview) -> Iterator[Warned]:
    for one in overview.troubled:
        if one.kind == "problem":
            problem = shortened(as_typed(one.problem or ""), PROBLEM_CHARACTERS_MAX)
            yield Warned(
                "schedule_problem",
                f"schedule {_brief(one.name)} does not fire: {problem} — "
                f"change it: pgtasks schedules edit {shlex.quote(_brief(one.name))}",
                {"schedule": one.name, "problem": one.problem},
            )


def _overdue_schedules(overview: Overview) -> Iterator[Warned]:
    for one in overview.troubled:
        if one.kind in {"overdue", "unplanned"} and one.since is not None:
            overdue_s = (overview.server.now - one.since) / timedelta(seconds=1)
            span = age(overdue_s)
            what = f"should have fired {span} ago" if one.kind == "overdue" else f"has waited {span} to be planned"
            yield Warned(
                "overdue_schedule",
                f"schedule {_brief(one.name)} {what} — no scheduler runs: start a "
                "worker without --no-scheduler, or pgtasks scheduler",
                {"schedule": one.name, "overdue_s": round(overdue_s, 3)},
            )


def _unknown_tasks(overview: Overview) -> Iterator[Warned]:
    for one in overview.troubled:
        if one.kind == "unknown_task":
            whose, verb = _schedules_named(one)
            them = " ".join(shlex.quote(_brief(name)) for name in one.names)
            yield Warned(
                "unknown_schedule_task",
                f"{whose} {verb} {_brief(one.task)}, which no worker knows — start a worker whose app has that task, "
                f"or pause {'it' if one.schedules == 1 else 'them'}: pgtasks schedules pause {them}"
                f"{' …' if one.schedules > len(one.names) else ''}",
                {"task": one.task, "schedules": one.names, "count": one.schedules},
            )


def _schedules_named(one: TroubleRow) -> tuple[str, str]:
    """Name the schedules of a finding, as far as they were read, with the verb that goes with so many."""
    named = ", ".join(_brief(name) for name in one.names)
    if one.schedules == 1:
        return f"schedule {named}", "enqueues"
    more = one.schedules - len(one.names)
    return f"schedules {named}{f' and {more:,} more' if more else ''}", "enqueue"


def _paused_queues(overview: Overview) -> Iterator[Warned]:
    for queue in overview.queues:
        if queue.paused_at is not None:
            paused_s = (overview.server.now - queue.paused_at) / timedelta(seconds=1)
            yield Warned(
                "paused_queue",
                f"queue {_brief(queue.queue)} is paused for {age(paused_s)} — "
                f"pgtasks queues resume {shlex.quote(queue.queue)}",
                {"queue": queue.queue, "paused_at": queue.paused_at},
            )


def _stuck_listeners(overview: Overview) -> Iterator[Warned]:
    for row in overview.transactions:
        if row.kind == "listener":
            worker = (row.application or "").rpartition("/")[2]
            yield Warned(
                "stuck_listener",
                f"worker {worker} has taken no notifications for {age(row.age_s)}: it is stopped or hangs, and its "
                "session keeps vacuum from removing dead rows — continue it, kill it, or "
                f"SELECT pg_terminate_backend({row.pid})",
                {"pid": row.pid, "age_s": round(row.age_s, 3), "application": row.application},
            )


def _old_transactions(overview: Overview) -> Iterator[Warned]:
    for row in overview.transactions:
        if row.kind == "listener":
            continue
        who = f"{row.username or 'unknown user'}, {row.application or 'no application name'}, {row.state}"
        what, fix = (
            (f"prepared transaction {row.application}", "COMMIT PREPARED or ROLLBACK PREPARED it")
            if row.pid is None
            else (f"the transaction of pid {row.pid}", f"end it, or SELECT pg_terminate_backend({row.pid})")
        )
        yield Warned(
            "old_transaction",
            f"{what} ({who}) has been open for {age(row.age_s)} and keeps vacuum from removing dead rows — {fix}",
            {
                "pid": row.pid,
                "age_s": round(row.age_s, 3),
                "user": row.username,
                "application": row.application,
                "state": row.state,
            },
        )


def _missing_partitions(overview: Overview) -> Iterator[Warned]:
    for table, found in (
        ("history", overview.server.history_unpartitioned),
        ("attempts", overview.server.attempts_unpartitioned),
    ):
        if found:
            yield Warned(
                "missing_partition",
                f"rows of {table} went to its default partition, because no partition for their day was there — "
                "SELECT pgtasks.create_partitions() makes those of the coming days; a running worker does it too",
                {"table": table},
            )


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _brief(name: str) -> str:
    return shortened(name, SHOWN_CHARACTERS_MAX)
