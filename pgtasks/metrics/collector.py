"""From a worker's counts and the database's facts to metric families, at the moment of a scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from pgtasks.engine.meter import LABELS_MAX, OTHER, OUTCOMES, Attempts, Buckets, Meter
from pgtasks.engine.vitals import Ping, Vitals
from pgtasks.metrics.catalogue import BY_NAME
from pgtasks.metrics.facts import FactsKeeper
from pgtasks.metrics.labels import bounded, label
from pgtasks.store.facts import STATUSES, QueueFacts

Values = Iterable[tuple[Sequence[str], float]]
# Those that a registered name has from the start, so that rates and alerts need no first event.
_FROM_START = ("completed", "retried", "dead")


def page_of(registry: CollectorRegistry, accept: str) -> tuple[str, bytes]:
    """Give the content type and text of the metrics page, in the newest format that the scraper reads."""
    encode, content_type = choose_encoder(accept)
    return content_type, encode(registry)


def make_registry(*collectors: Collector) -> CollectorRegistry:
    """Make a registry of our own: nothing of the global one, which belongs to the app."""
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    for collector in collectors:
        registry.register(collector)
    return registry


def family(name: str, values: Values) -> Family:
    """Make a counter's or a gauge's family, as the catalogue describes it."""
    metric = BY_NAME[name]
    made: CounterMetricFamily | GaugeMetricFamily
    if metric.kind == "counter":
        made = CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
    else:
        made = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in values:
        made.add_metric(labels, value)
    return made


def single(name: str, value: float) -> Family:
    """Make the family of a metric without labels."""
    return family(name, [((), value)])


def histogram(name: str, values: Mapping[str | None, Buckets]) -> Family:
    """Make a histogram's family; its key is the label's value, or None without labels."""
    metric = BY_NAME[name]
    made = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    for key, found in values.items():
        below, buckets = 0, list[tuple[str, float]]()
        for bound, count in zip((*map(str, found.bounds), "+Inf"), list(found.counts), strict=True):
            below += count
            buckets.append((bound, below))
        made.add_metric([] if key is None else [key], buckets, found.total)
    return made


class WorkerCollector(Collector):
    """What one worker counts; nothing before it works."""

    def __init__(self, meter: Meter, vitals: Callable[[], Vitals | None]) -> None:
        self._meter, self._vitals = meter, vitals
        self._pings: dict[str, Ping] = {}

    def collect(self) -> Iterator[Family]:
        """Give the families."""
        vitals = self._vitals()
        if vitals is None:
            return
        yield from self._counted(vitals)
        yield from self._read(vitals)

    def _counted(self, vitals: Vitals) -> Iterator[Family]:
        meter = self._meter
        for queue in vitals.info.queues[:LABELS_MAX]:
            meter.queue(queue)
        claims = {label(queue): counts for queue, counts in list(meter.claims.items())}
        attempts = {label(name): counts for name, counts in list(meter.attempts.items())}
        yield family("pgtasks_tasks_claimed_total", [((queue,), counts.tasks) for queue, counts in claims.items()])
        yield histogram("pgtasks_task_wait_seconds", {queue: counts.waits for queue, counts in claims.items()})
        yield family("pgtasks_tasks_finished_total", _finished(attempts, vitals.info.names))
        yield histogram("pgtasks_task_duration_seconds", {name: one.durations for name, one in attempts.items()})
        yield histogram("pgtasks_claim_seconds", {None: meter.claim_times})
        yield single("pgtasks_leases_lost_total", meter.leases_lost)
        errors = {**dict.fromkeys(("claim", "finish", "heartbeat"), 0), **meter.database_errors}
        yield family("pgtasks_database_errors_total", [((part,), count) for part, count in errors.items()])
        yield family("pgtasks_schedule_fires_total", [((outcome,), count) for outcome, count in meter.fires.items()])
        yield histogram("pgtasks_schedule_lateness_seconds", {None: meter.lateness})

    def _read(self, vitals: Vitals) -> Iterator[Family]:
        yield single("pgtasks_outcomes_written_total", vitals.completer.written)
        yield single("pgtasks_outcomes_unwritten", vitals.completer.backlog)
        yield single("pgtasks_tasks_swept_total", vitals.sweeper.swept)
        yield family("pgtasks_slots", [((state,), count) for state, count in vitals.slots_by_state().items()])
        yield family("pgtasks_loop_lag_seconds", self._lags(vitals))
        yield single("pgtasks_claims_total", vitals.claimer.claims)
        yield single("pgtasks_rescans_total", vitals.claimer.rescans)
        yield single("pgtasks_wakeups_total", vitals.claimer.wakeups)
        yield single("pgtasks_heartbeats_total", vitals.heartbeat.beats)
        info = vitals.info
        yield family("pgtasks_worker_info", [((info.version, str(info.id), label(info.name)), 1)])

    def _lags(self, vitals: Vitals) -> Values:
        for name, loop in (("engine", vitals.loop), ("handlers", vitals.executor.handlers_loop)):
            if loop is None:
                continue
            if name not in self._pings or self._pings[name].loop is not loop:
                self._pings[name] = Ping(loop)
            yield (name,), self._pings[name].lag_s()


def _finished(attempts: Mapping[str, Attempts], names: Sequence[str]) -> Values:
    shown = {name: one.outcomes for name, one in attempts.items()}
    for name in names[: max(0, LABELS_MAX - len(shown))]:
        shown.setdefault(label(name), {})
    for name, outcomes in shown.items():
        for kind, outcome in OUTCOMES.items():
            count = outcomes.get(kind, 0)
            if count or outcome in _FROM_START:
                yield (name, outcome), count


class FactsCollector(Collector):
    """Facts about the database."""

    def __init__(self, keeper: FactsKeeper) -> None:
        self._keeper = keeper

    def collect(self) -> Iterator[Family]:
        """Give the families; only the count of errors while there are no facts."""
        known = self._keeper.known()
        yield single("pgtasks_facts_errors_total", known.errors)
        facts = known.facts
        if facts is None:
            return
        yield single("pgtasks_facts_age_seconds", known.age_s)
        yield single("pgtasks_oldest_waiting_seconds", facts.oldest_waiting_s)
        yield single("pgtasks_oldest_transaction_seconds", facts.oldest_transaction_s)
        yield single("pgtasks_schedules_overdue", facts.schedules_overdue)
        yield single("pgtasks_schedules_overdue_seconds", facts.schedules_overdue_s)
        yield from _queues(bounded(facts.queues))


def _queues(found: list[tuple[str, list[QueueFacts]]]) -> Iterator[Family]:
    yield family(
        "pgtasks_queue_tasks",
        [
            ((queue, status), sum(one.tasks.get(status, 0) for one in several))
            for queue, several in found
            for status in STATUSES
        ],
    )
    yield family(
        "pgtasks_queue_oldest_waiting_seconds",
        [((queue,), max(one.oldest_waiting_s for one in several)) for queue, several in found],
    )
    yield family(
        "pgtasks_dead_letters", [((queue,), sum(one.dead_letters for one in several)) for queue, several in found]
    )
    yield family(
        "pgtasks_dead_letters_last_hour",
        [((queue,), sum(one.dead_letters_last_hour for one in several)) for queue, several in found],
    )
    # Of several queues together these would mean nothing.
    named = [(queue, several[0]) for queue, several in found if queue != OTHER or len(several) == 1]
    yield family("pgtasks_queue_paused", [((queue,), int(one.paused)) for queue, one in named])
    yield family("pgtasks_queue_workers", [((queue,), one.workers) for queue, one in named])
