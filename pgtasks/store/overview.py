"""What goes on in a database, as numbers whose cost does not grow with it.

Live tasks are counted in two steps. A sample of pages comes first: while the table is small it
is the whole table and everything is exact. Otherwise the sample says which queues are small
enough to be counted one by one, through the index, up to 20,000 rows each and 25,000 in all;
the others keep their estimates, except that running tasks are always counted, through the
leases. These limits are what a look may cost: a row that is found through the index lies on a
page of its own, so 25,000 take 60 ms. Finished tasks lie together and dead letters are counted
in the index alone, so there the limit is 100,000.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pgtasks.store import reading, schedule_reading
from pgtasks.store.session import SyncConnection, fetch_all, index_order

EXACT_ROWS_MAX = 100_000
HISTORY_PAGES = 1024
QUEUES_MAX = 1000
WORKERS_MAX = 1000
HEAD_ROWS_MAX = 10_000
HEAD_ROWS_PER_QUEUE_MAX = 2000
SUSPECTS_SCAN_MAX = 10_000
# Dead letters of every queue that are counted first; those with more share what is left.
DEAD_ROWS_FIRST = 1000
PERIOD_S = 3600.0
RECENT_S = 60.0
RECENT_ROWS_MAX = 20_000
# With fewer rows of the last minute in the sample, its estimate is worth less than a partial count.
RECENT_SAMPLED_MIN = 2000
OLD_TRANSACTION_S = 60.0
# A lease is taken back by the next sweep; one that stays longer deserves a word.
SWEEP_TOLERATED_S = 5.0
FINDINGS_MAX = 20
# A slot fires within seconds; one that is due for longer has no scheduler, or none that can.
OVERDUE_S = 60.0
_WHOLE = 99.999


@dataclass(frozen=True, slots=True)
class Budget:
    """How many rows may be counted: pages of the sample, tasks of one queue and of all, dead letters of all."""

    pages: int
    queue_rows: int
    rows: int
    dead_rows: int


STATUS = Budget(pages=2048, queue_rows=20_000, rows=25_000, dead_rows=2 * EXACT_ROWS_MAX)


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """One queue. ``estimated`` is about its counts of tasks, but for ``running``; the others about what they name."""

    queue: str
    paused_at: datetime | None = None
    scheduled: int = 0
    queued: int = 0
    running: int = 0
    retrying: int = 0
    dead: int = 0
    estimated: bool = False
    dead_estimated: bool = False
    completed_last_hour: int = 0
    completed_estimated: bool = False
    rate_per_s: float = 0.0
    rate_estimated: bool = False
    oldest_waiting_since: datetime | None = None
    workers: int = 0


@dataclass(frozen=True, slots=True)
class Waiting:
    """How many tasks of a name wait in a queue, as far as was looked."""

    queue: str
    name: str
    tasks: int
    estimated: bool


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything `status` shows."""

    server: reading.ServerRow
    queues: list[QueueCounts]
    workers: list[reading.WorkerRow]
    waiting: list[Waiting]
    lost: list[reading.LostRow]
    suspects: list[reading.SuspectsRow]
    transactions: list[reading.TransactionRow]
    registered: list[reading.TypeRow]
    schedules: schedule_reading.CountRow
    fires: schedule_reading.FiresRow
    troubled: list[schedule_reading.TroubleRow]


def read_overview(connection: SyncConnection) -> Overview:
    """Read what goes on; raises DatabaseError."""
    server = fetch_all(connection, reading.server())[0]
    queues, sample = read_counts(connection, STATUS)
    queues = _with_completed(connection, queues)
    return Overview(
        server=server,
        queues=sorted(queues.values(), key=lambda queue: queue.queue),
        workers=fetch_all(connection, reading.workers(limit=WORKERS_MAX)),
        waiting=_waiting(connection, queues.values(), sample),
        lost=fetch_all(connection, reading.lost(tolerated_s=SWEEP_TOLERATED_S, limit=FINDINGS_MAX)),
        suspects=fetch_all(connection, reading.suspects(scan=SUSPECTS_SCAN_MAX, limit=FINDINGS_MAX)),
        transactions=fetch_all(
            connection, reading.old_transactions(older_than_s=OLD_TRANSACTION_S, limit=FINDINGS_MAX)
        ),
        registered=fetch_all(connection, reading.known_names()),
        schedules=fetch_all(connection, schedule_reading.count(overdue_s=OVERDUE_S))[0],
        fires=fetch_all(connection, schedule_reading.count_fires())[0],
        troubled=fetch_all(connection, schedule_reading.troubled(overdue_s=OVERDUE_S, limit=FINDINGS_MAX)),
    )


# --- Live tasks ---


def read_counts(
    connection: SyncConnection, budget: Budget, *, limit: int = QUEUES_MAX
) -> tuple[dict[str, QueueCounts], list[reading.SampledRow]]:
    """Count the tasks and the dead letters of up to ``limit`` queues; give the sample as well. Raises DatabaseError."""
    queues = {
        row.queue: QueueCounts(
            row.queue, row.paused_at, oldest_waiting_since=row.oldest_waiting_since, workers=row.workers
        )
        for row in fetch_all(connection, reading.queues(limit=limit))
    }
    sample = fetch_all(connection, reading.sample(pages=budget.pages))
    queues = _with_live_counts(connection, queues, sample, budget)
    return _with_dead(connection, queues, budget), sample


def _with_live_counts(
    connection: SyncConnection,
    queues: dict[str, QueueCounts],
    sample: Sequence[reading.SampledRow],
    budget: Budget,
) -> dict[str, QueueCounts]:
    queues = {name: queues.get(name, QueueCounts(name)) for name in [*queues, *(row.queue for row in sample)]}
    estimates = estimates_of(sample)
    for name, estimate in estimates.items():
        queues[name] = replace(
            queues[name],
            scheduled=estimate["scheduled"],
            queued=estimate["queued"],
            running=estimate["running"],
            retrying=estimate["retrying"],
        )
    if is_whole(sample):
        return queues
    chosen = worth_counting({name: sum(estimates.get(name, {}).values()) for name in queues}, budget)
    with index_order(connection):
        counted = fetch_all(connection, reading.count(chosen, limit=budget.queue_rows + 1))
    exact = {row.queue: row for row in counted if row.total <= budget.queue_rows}
    least = {row.queue: row for row in counted if row.total > budget.queue_rows}
    running = {row.queue: row.running for row in fetch_all(connection, reading.running(limit=EXACT_ROWS_MAX))}
    return {
        name: _exactly(queue, exact[name]) if name in exact else _at_least(queue, least.get(name), running.get(name, 0))
        for name, queue in queues.items()
    }


def is_whole(sample: Sequence[reading.SampledRow]) -> bool:
    """Tell whether a sample is the whole table; an empty one may have missed everything."""
    return bool(sample) and sample[0].percentage >= _WHOLE


def estimates_of(sample: Iterable[reading.SampledRow]) -> dict[str, dict[str, int]]:
    """Extrapolate a sample to the whole table, by queue."""
    totals: dict[str, Counter[str]] = {}
    for row in sample:
        counts = totals.setdefault(row.queue, Counter())
        for status in ("scheduled", "queued", "running", "retrying"):
            counts[status] += round(getattr(row, status) * 100 / row.percentage)
    return {name: dict(counts) for name, counts in totals.items()}


def worth_counting(estimates: Mapping[str, int], budget: Budget) -> list[str]:
    """Choose the queues to count one by one: the smallest first, as far as the budget goes."""
    chosen, spent = [], 0
    for name, estimate in sorted(estimates.items(), key=lambda item: item[1]):
        # Near the limit the sample cannot tell on which side of it the queue is.
        if estimate > budget.queue_rows * 1.2 or spent + estimate > budget.rows:
            break
        chosen.append(name)
        spent += estimate
    return chosen


def _exactly(queue: QueueCounts, exact: reading.CountedRow) -> QueueCounts:
    return replace(
        queue, scheduled=exact.scheduled, queued=exact.queued, running=exact.running, retrying=exact.retrying
    )


def _at_least(queue: QueueCounts, counted: reading.CountedRow | None, running: int) -> QueueCounts:
    if counted is None:
        return replace(queue, running=running, estimated=True)
    # More than the limit: what was counted is the least that there is.
    return replace(
        queue,
        scheduled=max(queue.scheduled, counted.scheduled),
        queued=max(queue.queued, counted.queued),
        running=running,
        retrying=max(queue.retrying, counted.retrying),
        estimated=True,
    )


def _with_dead(connection: SyncConnection, queues: dict[str, QueueCounts], budget: Budget) -> dict[str, QueueCounts]:
    limit = min(DEAD_ROWS_FIRST, budget.dead_rows)
    found = {row.queue: row for row in fetch_all(connection, reading.dead(list(queues), limit=limit + 1))}
    many = [name for name, row in found.items() if row.dead > limit]
    if many:
        limit = max(limit, min(EXACT_ROWS_MAX, budget.dead_rows // len(many)))
        found |= {row.queue: row for row in fetch_all(connection, reading.dead(many, limit=limit + 1))}
    large = [name for name in many if found[name].dead > limit]
    counted = sum(row.dead for name, row in found.items() if name not in large)
    for name, row in found.items():
        dead = row.dead
        if name in large:
            # Those that are too many to count share what the statistics say is left.
            dead = max(dead, (row.table_rows - counted) // len(large))
        queues[name] = replace(queues[name], dead=dead, dead_estimated=name in large)
    return queues


# --- What was completed ---


def _with_completed(connection: SyncConnection, queues: dict[str, QueueCounts]) -> dict[str, QueueCounts]:
    sample = fetch_all(connection, reading.sample_history(pages=HISTORY_PAGES, period_s=PERIOD_S, recent_s=RECENT_S))
    whole = bool(sample) and sample[0].percentage >= _WHOLE
    hour = {row.queue: round(row.period * 100 / row.percentage) for row in sample}
    estimated = sum(hour.values()) > EXACT_ROWS_MAX and not whole
    if not whole and not estimated:
        rows = fetch_all(connection, reading.completed(period_s=PERIOD_S, limit=EXACT_ROWS_MAX + 1))
        if sum(row.completed for row in rows) <= EXACT_ROWS_MAX:
            hour = {row.queue: row.completed for row in rows}
        else:
            estimated = True
            hour = {row.queue: max(row.completed, hour.get(row.queue, 0)) for row in rows}
    recent = fetch_all(connection, reading.completed(period_s=RECENT_S, limit=RECENT_ROWS_MAX + 1))
    rates = rates_of(recent, sample)
    # Also of queues that have no row there: a sample that saw none does not say that there are none.
    for name in {*queues, *hour, *rates}:
        queues[name] = replace(
            queues.get(name, QueueCounts(name)),
            completed_last_hour=hour.get(name, 0),
            completed_estimated=estimated,
            rate_per_s=rates.get(name, 0.0),
            rate_estimated=_is_partial(recent),
        )
    return queues


def _is_partial(recent: Sequence[reading.CompletedRow]) -> bool:
    return sum(row.completed for row in recent) > RECENT_ROWS_MAX


def rates_of(recent: Sequence[reading.CompletedRow], sample: Sequence[reading.SampledHistoryRow]) -> dict[str, float]:
    """Give tasks per second over the last minute, by queue.

    When more was completed than is counted, the sample tells the rate if it holds enough of
    that minute; else it is that of the time which the counted rows span.
    """
    if not recent:
        return {}
    if not _is_partial(recent):
        return {row.queue: row.completed / RECENT_S for row in recent}
    if sum(row.recent for row in sample) >= RECENT_SAMPLED_MIN:
        return {row.queue: row.recent * 100 / row.percentage / RECENT_S for row in sample if row.recent}
    span_s = (max(row.last_at for row in recent) - min(row.first_at for row in recent)) / timedelta(seconds=1)
    return {row.queue: row.completed / min(RECENT_S, max(0.001, span_s)) for row in recent}


# --- Names ---


def _waiting(
    connection: SyncConnection, queues: Iterable[QueueCounts], sample: Sequence[reading.SampledRow]
) -> list[Waiting]:
    """Say which names wait in which queue: at the heads of the queues, and in the sample."""
    found = {(row.queue, row.name): round(row.due * 100 / row.percentage) for row in sample if row.due}
    if is_whole(sample):
        return [Waiting(queue, name, tasks, estimated=False) for (queue, name), tasks in sorted(found.items())]
    waiting = [queue.queue for queue in queues if queue.oldest_waiting_since is not None]
    if not waiting:
        return []
    limit = max(1, min(HEAD_ROWS_PER_QUEUE_MAX, HEAD_ROWS_MAX // len(waiting)))
    with index_order(connection):
        rows = fetch_all(connection, reading.heads(waiting, limit=limit))
    complete = {name for name, total in _totals(rows).items() if total < limit}
    for row in rows:
        key = (row.queue, row.name)
        found[key] = row.waiting if row.queue in complete else max(row.waiting, found.get(key, 0))
    return [
        Waiting(queue, name, tasks, estimated=queue not in complete) for (queue, name), tasks in sorted(found.items())
    ]


def _totals(rows: Iterable[reading.HeadRow]) -> Counter[str]:
    totals: Counter[str] = Counter()
    for row in rows:
        totals[row.queue] += row.waiting
    return totals
