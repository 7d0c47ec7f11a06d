"""What is documented, alerted on and drawn is what is exported, under the same names and labels."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import yaml

from pgtasks.metrics.catalogue import BY_NAME, Metric
from tests.database import ROOT

ALERTS = ROOT / "deploy/prometheus/alerts.yml"
ALERTS_TEST = ROOT / "deploy/prometheus/alerts_test.yml"
DASHBOARD = ROOT / "deploy/grafana/pgtasks.json"
# What Prometheus itself, and the Python client on Linux, add.
FOREIGN = {"up", "process_cpu_seconds_total", "process_resident_memory_bytes"}
FOREIGN_LABELS = {"instance", "job", "le"}
ROW = re.compile(r"^\| `(pgtasks_\w+)` \| (\w+) \| (.*?) \| (.*) \|$", re.MULTILINE)

SAMPLES = {sample: metric for metric in BY_NAME.values() for sample in metric.samples}
_WORDS = {"and", "or", "unless", "by", "on", "without", "ignoring", "bool", "offset"}
_GROUPING = re.compile(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)")
_MATCHERS = re.compile(r"\{([^}]*)\}")


class Named(NamedTuple):
    """What an expression names."""

    metrics: set[str]
    labels: set[str]


def named_in(expression: str) -> Named:
    """Read PromQL as far as needed: the metrics and labels that it names."""
    text = re.sub(r'"(?:[^"\\]|\\.)*"', '""', expression)
    labels = {label.strip() for group in _GROUPING.findall(text) for label in group.split(",")}
    labels |= {label for matchers in _MATCHERS.findall(text) for label in re.findall(r"(\w+)\s*[=!]", matchers)}
    text = re.sub(r"\[[^\]]*\]", " ", _MATCHERS.sub(" ", _GROUPING.sub(" ", text)))
    return Named(set(re.findall(r"(?<![\w$])[a-z_][\w:]*\b(?!\s*\()", text)) - _WORDS, labels)


def test_names_are_found_in_an_expression() -> None:
    """Functions, labels, strings and spans are no metrics."""
    text = 'topk(3, sum by (le, queue) (rate(a_bucket{x="b{c}", y!~"d"}[5m]))) > 0 unless on (queue) max(e) offset 1h'
    assert named_in(text) == Named({"a_bucket", "e"}, {"le", "queue", "x", "y"})


def alerts() -> list[dict[str, Any]]:
    """Return the rules."""
    return [rule for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]


def expressions() -> Iterator[tuple[str, str]]:
    """Yield the expressions of the alerts and of the dashboard, with the place where each stands."""
    yield from ((rule["alert"], rule["expr"]) for rule in alerts())
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        yield from ((panel["title"], target["expr"]) for target in panel.get("targets", []))


@pytest.mark.parametrize(("place", "expression"), list(expressions()))
def test_an_expression_uses_exported_names_and_their_labels(place: str, expression: str) -> None:
    """A misspelt one draws nothing and never fires."""
    named = named_in(expression)
    assert named.metrics, place
    assert named.metrics - SAMPLES.keys() - FOREIGN == set(), place
    exported = {label for name in named.metrics & SAMPLES.keys() for label in SAMPLES[name].labels}
    assert named.labels - exported - FOREIGN_LABELS == set(), place


@pytest.mark.parametrize("metric", BY_NAME.values(), ids=lambda metric: metric.name)
def test_names_follow_the_conventions(metric: Metric) -> None:
    """Counters end in _total, times are seconds."""
    assert re.fullmatch(r"pgtasks_[a-z]+(?:_[a-z]+)*", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert not re.search(r"_(?:ms|milliseconds|minutes|kib|mib)\b", metric.name)
    assert metric.kind != "histogram" or metric.name.endswith("_seconds")


def test_the_documentation_lists_every_metric_and_no_other() -> None:
    """By name, type, labels and meaning, in the same order."""
    text = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    documented = [
        (name, kind, tuple(re.findall(r"`(\w+)`", labels)), meaning)
        for name, kind, labels, meaning in ROW.findall(text)
    ]
    assert documented == [tuple(metric) for metric in BY_NAME.values()]
    named = set(re.findall(r"\bpgtasks_[a-z_]+\b", text)) - {"pgtasks_test"}
    assert named - SAMPLES.keys() - BY_NAME.keys() == set()


def test_the_dashboard_draws_every_metric() -> None:
    """One that nobody sees is not worth its series."""
    drawn = {name for _, expression in expressions() for name in named_in(expression).metrics}
    assert {metric.name for metric in BY_NAME.values() if not drawn & set(metric.samples)} == set()


def test_facts_about_the_database_are_never_summed_over_instances() -> None:
    """Every instance says the same: a sum would multiply it."""
    facts = "|".join(name for name in BY_NAME if re.match("pgtasks_(?:queue_|dead_|oldest_|schedules_)", name))
    for place, expression in expressions():
        assert not re.search(rf"\b(?:sum|avg|count)\b(?:\s*by\s*\([^)]*\))?\s*\(\s*(?:{facts})\b", expression), place


def test_every_alert_is_tested() -> None:
    """Both that it fires and that it does not."""
    text = ALERTS_TEST.read_text(encoding="utf-8")
    for rule in alerts():
        assert text.count(rule["alert"]) >= 2, rule["alert"]
        assert {"summary", "description"} <= rule["annotations"].keys()
        assert rule["labels"]["severity"] in {"warning", "critical"}


def test_alerts_fire_when_they_should() -> None:
    """By Prometheus' own judgement."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed here; it comes with Prometheus")
    done = subprocess.run(
        [promtool, "test", "rules", ALERTS_TEST.name],
        cwd=ALERTS_TEST.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
