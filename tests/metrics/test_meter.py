"""A worker's own counts: what is counted, under bounded labels, and how it comes to the page."""

import math
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import CollectorRegistry, parser
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.registry import Collector

from pgtasks import App, events
from pgtasks.engine.attempt import Attempt
from pgtasks.engine.meter import LABELS_MAX, OTHER, OUTCOMES, Buckets, Meter
from pgtasks.engine.runners import Finished
from pgtasks.metrics.collector import family, histogram, page_of
from pgtasks.metrics.labels import bounded, label
from pgtasks.model import Claimed
from pgtasks.outcome import Completed, Released

NOW = datetime(2027, 1, 1, tzinfo=UTC)


def task(name: str = "a", waited_s: float = 0.0) -> Claimed:
    """Return a claimed task that was due some seconds before NOW."""
    return Claimed(1, 1, name, "{}", 1, None, None, 0, NOW - timedelta(seconds=waited_s), None)


def attempt(name: str = "a", took_s: float = 0.0) -> Attempt:
    """Return an attempt that began some seconds ago."""
    app = App()
    app.task(name=name)(lambda: None)
    return Attempt(task(name), app.handlers[name], "default", time.monotonic() - took_s)


@pytest.mark.parametrize(("value", "bucket"), [(-1, 0), (0, 0), (0.1, 0), (0.10001, 1), (1, 1), (5, 2), (math.inf, 2)])
def test_a_value_falls_into_the_first_bucket_that_holds_it(value: float, bucket: int) -> None:
    """A bound belongs to its bucket; a clock that runs behind makes no negative sum."""
    found = Buckets((0.1, 1.0))
    found.add(value)
    assert found.counts[bucket] == 1
    assert found.total == max(0.0, value)


def test_claims_are_counted_with_how_long_they_waited() -> None:
    """Without the database's time they are counted all the same."""
    meter = Meter()
    meter.count_claimed("mails", [task(waited_s=2.0), task(waited_s=0.001)], NOW)
    meter.count_claimed("mails", [task()], None)
    assert meter.claims["mails"].tasks == 3
    assert sum(meter.claims["mails"].waits.counts) == 2
    assert meter.claims["mails"].waits.total == pytest.approx(2.001)


def test_ended_attempts_are_counted_and_handed_on() -> None:
    """By name and outcome, with their duration."""
    meter, seen = Meter(), list[object]()
    finished: Finished = [(attempt(took_s=2.0), Completed()), (attempt(), Released())]
    meter.counting(seen.extend)(finished)
    assert seen == finished
    counts = meter.attempts["a"]
    assert {OUTCOMES[kind]: count for kind, count in counts.outcomes.items() if count} == {
        "completed": 1,
        "released": 1,
    }
    assert counts.durations.total == pytest.approx(2.0, abs=1.0)


def test_the_number_of_labels_is_bounded() -> None:
    """Ten thousand names make 200 series and one for the others, and no count is lost."""
    meter = Meter()
    for number in range(10_000):
        meter.queue(f"q{number}").tasks += 1
        meter.task(f"t{number}").outcomes[Completed] += 1
    assert len(meter.claims) == len(meter.attempts) == LABELS_MAX + 1
    assert meter.claims[OTHER].tasks == meter.attempts[OTHER].outcomes[Completed] == 10_000 - LABELS_MAX
    assert meter.task("") is meter.attempts[OTHER]


def test_facts_beyond_the_bound_come_together() -> None:
    """The first by name keep theirs."""
    found = dict(bounded({f"q{number:05}": number for number in range(10_000)}))
    assert len(found) == LABELS_MAX + 1
    assert found["q00007"] == [7]
    assert len(found[OTHER]) == 10_000 - LABELS_MAX


def test_events_are_counted() -> None:
    """Those that are rare; a fault of the subscriber stays where it is."""
    meter = Meter()
    end = events.subscribe(meter.hear)
    end_bad = events.subscribe(lambda _event, fields: fields["missing"])  # type: ignore[arg-type]  # it raises, returning nothing
    try:
        events.debug("round failed", part="claim", error="X", database=True)
        events.debug("round failed", part="claim", error="X", database=False)
        events.warning("lease lost", why="", leases=[], tasks=[], count=3)
        events.warning("lease lost, result refused", count=2)
        events.info("schedules fired", fired=2, skipped_overlap=1, missed=4, late_s=0.3)
    finally:
        end()
        end_bad()
    events.warning("lease lost", count=100)
    assert meter.database_errors == {"claim": 1}
    assert meter.leases_lost == 5
    assert meter.fires == {"fired": 2, "skipped": 1, "missed": 4}
    assert meter.lateness.total == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("\ud800", "\\ud800"),
        ("a\nb\x1b[2J", "a\\nb\\x1b[2J"),
        (b"\xff\xc3\xa9", "\\xffé"),
        ("宽字符 [bold]", "宽字符 [bold]"),
        ("x" * 300, "x" * 199 + "…"),
    ],
)
def test_any_text_can_be_a_label(value: object, shown: str) -> None:
    """What UTF-8 cannot write, or what acts on a terminal, is written out."""
    assert label(value) == shown


@pytest.mark.parametrize(
    ("accept", "parse"),
    [
        ("text/plain", parser.text_string_to_metric_families),
        ("application/openmetrics-text", openmetrics.text_string_to_metric_families),
    ],
)
def test_a_hostile_label_does_not_break_the_page(accept: str, parse: Callable[[str], Iterable[Metric]]) -> None:
    """A lone surrogate would be an error in the middle of the page, a newline a line of its own."""

    class Hostile(Collector):
        def collect(self) -> list[object]:  # type: ignore[override]  # of any families
            named = [((label(name), "queued"), 1.0) for name in ("\ud800", 'a"} 1\npgtasks_up 1', "\\")]
            return [family("pgtasks_queue_tasks", named), histogram("pgtasks_task_wait_seconds", {"q": filled})]

    filled = Buckets((0.1, 1.0))
    filled.add(0.5)
    registry = CollectorRegistry()
    registry.register(Hostile())
    content_type, page = page_of(registry, accept)
    assert content_type.startswith(accept)
    found = {one.name: one.samples for one in parse(page.decode("utf-8"))}
    assert found.keys() == {"pgtasks_queue_tasks", "pgtasks_task_wait_seconds"}
    assert [one.labels["queue"] for one in found["pgtasks_queue_tasks"]] == ["\\ud800", 'a"} 1\\npgtasks_up 1', "\\"]
    buckets = {one.labels.get("le"): one.value for one in found["pgtasks_task_wait_seconds"]}
    assert buckets["0.1"] == 0
    assert buckets["1.0"] == buckets["+Inf"] == 1
