"""Every metric there is: its name, type, labels and meaning. docs/metrics.md says the same (a test compares)."""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]


class Metric(NamedTuple):
    """One metric, by the name under which it is exported."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str

    @property
    def samples(self) -> tuple[str, ...]:
        """The names of its samples: what a query may use."""
        if self.kind == "histogram":
            return tuple(f"{self.name}_{suffix}" for suffix in ("bucket", "sum", "count"))
        return (self.name,)


# Counted by one worker process; sum over instances.
WORKER = (
    Metric("pgtasks_tasks_claimed_total", "counter", ("queue",), "Tasks that this worker claimed."),
    Metric(
        "pgtasks_tasks_finished_total",
        "counter",
        ("name", "outcome"),
        "Attempts that ended here: completed, retried (failed, will be tried again), dead, cancelled, snoozed, "
        "released or lost.",
    ),
    Metric(
        "pgtasks_task_duration_seconds",
        "histogram",
        ("name",),
        "How long attempts took, however they ended.",
    ),
    Metric(
        "pgtasks_task_wait_seconds",
        "histogram",
        ("queue",),
        "How long tasks waited from the moment they were due until their start, by the database's clock.",
    ),
    Metric("pgtasks_outcomes_written_total", "counter", (), "Outcomes that the database has."),
    Metric("pgtasks_outcomes_unwritten", "gauge", (), "Outcomes that wait to be written."),
    Metric("pgtasks_leases_lost_total", "counter", (), "Tasks whose lease was lost while they ran here."),
    Metric(
        "pgtasks_tasks_swept_total",
        "counter",
        (),
        "Tasks of expired leases that this worker gave back for others.",
    ),
    Metric(
        "pgtasks_slots",
        "gauge",
        ("state",),
        "Slots by state: busy (a task runs), free, or stuck (its handler ignored its stop).",
    ),
    Metric(
        "pgtasks_loop_lag_seconds",
        "gauge",
        ("loop",),
        "How long an event loop took to answer just now: the engine's, or the one of async handlers.",
    ),
    Metric(
        "pgtasks_database_errors_total",
        "counter",
        ("part",),
        "Rounds of a part of the worker that failed because of the database; each is tried again.",
    ),
    Metric("pgtasks_claims_total", "counter", (), "Claims from a cursor, also those that found nothing."),
    Metric(
        "pgtasks_claim_seconds",
        "histogram",
        (),
        "How long claims took, from sending the statement until its rows are here; also those that found nothing.",
    ),
    Metric("pgtasks_rescans_total", "counter", (), "Claims from the head of a queue."),
    Metric("pgtasks_wakeups_total", "counter", (), "Times that the idle worker woke, by a bell or by itself."),
    Metric("pgtasks_heartbeats_total", "counter", (), "Heartbeats that the database answered."),
    Metric(
        "pgtasks_schedule_fires_total",
        "counter",
        ("outcome",),
        "Slots of schedules that this worker recorded: fired, missed or skipped.",
    ),
    Metric(
        "pgtasks_schedule_lateness_seconds",
        "histogram",
        (),
        "How late the latest slot was in each batch that this worker fired.",
    ),
    Metric(
        "pgtasks_worker_info",
        "gauge",
        ("version", "worker_id", "worker"),
        "Always 1; the labels say which worker this is.",
    ),
)

# Facts about the database, the same on every instance; take the max over instances, never the sum.
DATABASE = (
    Metric(
        "pgtasks_queue_tasks",
        "gauge",
        ("queue", "status"),
        "Live tasks in the database by status: scheduled, queued, running or retrying; estimated where there are many. "
        "The same on every instance: use max by (queue, status).",
    ),
    Metric(
        "pgtasks_queue_oldest_waiting_seconds",
        "gauge",
        ("queue",),
        "For how long the oldest waiting task of the queue has been due, 0 when none waits. Use max by (queue).",
    ),
    Metric(
        "pgtasks_oldest_waiting_seconds",
        "gauge",
        (),
        "For how long the oldest waiting task of all queues that are not paused has been due, 0 when none waits. "
        "Use max.",
    ),
    Metric("pgtasks_queue_paused", "gauge", ("queue",), "1 while the queue is paused. Use max by (queue)."),
    Metric("pgtasks_queue_workers", "gauge", ("queue",), "Live workers that serve the queue. Use max by (queue)."),
    Metric(
        "pgtasks_dead_letters",
        "gauge",
        ("queue",),
        "Dead letters of the queue; estimated where there are many. Use max by (queue).",
    ),
    Metric(
        "pgtasks_dead_letters_last_hour",
        "gauge",
        ("queue",),
        "Dead letters that came within the last hour, whoever buried them, also those of killed workers; up to 1,000 "
        "are counted for all queues. Use max by (queue).",
    ),
    Metric(
        "pgtasks_oldest_transaction_seconds",
        "gauge",
        (),
        "Age of the oldest transaction that holds back vacuum in this database. Use max.",
    ),
    Metric(
        "pgtasks_schedules_overdue",
        "gauge",
        (),
        "Schedules whose slot has been due for more than a minute without firing. Use max.",
    ),
    Metric(
        "pgtasks_schedules_overdue_seconds",
        "gauge",
        (),
        "For how long the most overdue schedule has been due, 0 when none is. Use max.",
    ),
    Metric("pgtasks_facts_age_seconds", "gauge", (), "How old these facts about the database are."),
    Metric(
        "pgtasks_facts_errors_total",
        "counter",
        (),
        "Times that the facts about the database could not be read; the last ones stay.",
    ),
)

BY_NAME = {metric.name: metric for metric in (*WORKER, *DATABASE)}
