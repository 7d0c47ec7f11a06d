"""The plots of docs/benchmarks.md: what of each committed result is worth a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from bench import worker
from bench.plot import Bar, Line, bars, lines
from bench.series import Sample, claim_p99_ms
from bench.tables import RIVAL, sorted_by, value_of

Document = Mapping[str, Any]
TENTHS = 10
FREE, HELD = "no snapshot held", "an old snapshot held"
WORKER, SERVER = "worker", "server processes"


def drawn(document: Document) -> dict[str, str]:
    """Give the plots of a result as SVG, by their names; a scenario without one gives none."""
    draw = _DRAW.get(document["scenario"])
    return {} if draw is None else {name: svg for name, svg in draw(document).items() if svg}


def _drain(document: Document) -> dict[str, str]:
    rates = [
        _bar(document, "rate", "pgtasks --concurrency 500"),
        _bar(document, "rate_at_best", f"pgtasks --concurrency {worker.CONCURRENCY_BEST}"),
        _bar(document, "rate_two_processes", "pgtasks --processes 2"),
        _bar(document, "sql_loop_rate", "bare SQL loop", other=True),
        *_rivals(document, "rate"),
    ]
    costs = [
        _bar(document, f"{figure}_cpu_us_per_task", "pgtasks", kind=kind)
        for figure, kind in (("worker", WORKER), ("backend", SERVER))
    ]
    for name in sorted_by(document, "rate"):
        costs += [
            _bar(document, f"{RIVAL}{name}.{figure}_cpu_us_per_task", _title(document, name), kind=kind, other=True)
            for figure, kind in (("worker", WORKER), ("backend", SERVER))
        ]
    return {
        "drain": _bars("Throughput from a full backlog", document, rates, unit="tasks per second"),
        "drain-cpu": _bars("What a task costs", document, costs, unit="CPU, µs per task", digits=1),
    }


def _field(document: Document) -> dict[str, str]:
    rates = [_bar(document, "rate_at_best", "pgtasks at its best"), *_rivals(document, "rate")]
    return {"field": _bars("The whole field, each from a full backlog", document, rates, unit="tasks per second")}


def _horizon(document: Document) -> dict[str, str]:
    courses = _rounds(document["claim_us_by_tenth"])
    return {
        "horizon": _lines(
            "The cost of a claim while a transaction is held open",
            document,
            courses,
            x=f"tenth of {document['tasks']:,} tasks",
            y="server CPU, µs per task",
        )
    }


def _held(document: Document) -> dict[str, str]:
    owners = [
        ("", "pgtasks"),
        *((f"{RIVAL}{name}.", _title(document, name)) for name in sorted_by(document, "rate_free")),
    ]
    rates = [
        _bar(document, f"{prefix}{figure}", label, kind=kind, other=bool(prefix))
        for prefix, label in owners
        for figure, kind in (("rate_free", FREE), ("rate_held", HELD))
    ]
    return {
        "held": _bars("Throughput with an old snapshot held open", document, rates, unit="tasks per second"),
        "held-course": _lines(
            "pgtasks with an old snapshot held open",
            document,
            _rounds(document["rate_held_by_tenth"]),
            x=f"tenth of {document['seconds']:g} s",
            y="tasks per second",
        ),
    }


def _enqueue(document: Document) -> dict[str, str]:
    bulk = [
        _bar(document, "copy_rate", "raw COPY", other=True),
        _bar(document, "bulk_rate", "pgtasks: enqueue_many"),
        _bar(document, "bulk_async_rate", "pgtasks: aenqueue_many"),
        *_rivals(document, "bulk_rate"),
    ]
    single = [
        _bar(document, "insert_rate", "a plain INSERT", other=True),
        _bar(document, "sql_rate", "SELECT pgtasks.enqueue(…)"),
        _bar(document, "python_rate", "pgtasks: task.enqueue()"),
        _bar(document, "python_async_rate", "pgtasks: task.aenqueue()"),
        *_rivals(document, "single_rate"),
    ]
    ratios = [
        _bar(document, f"trigger_ratio_16_producers{state}", label)
        for state, label in (
            ("", "a worker awake (the budget's)"),
            ("_alone", "no worker"),
            ("_idle", "bursts that wake workers"),
            ("_strangers", "a worker asleep that knows none"),
        )
    ]
    unit = "tasks per second"
    return {
        "enqueue": _bars("Adding tasks in bulk", document, bulk, unit=unit),
        "enqueue-single": _bars("Adding tasks one by one, each in its own transaction", document, single, unit=unit),
        "enqueue-trigger": _bars(
            "What the trigger leaves of the inserts of 16 producers",
            document,
            ratios,
            unit="rate with the trigger against the rate without",
            digits=2,
            limit=budget(document, "trigger_ratio_16_producers"),
        ),
    }


def budget(document: Document, name: str) -> float | None:
    """Give the limit that a figure has to keep, from the document."""
    found = document["budgets"].get(name)
    return float(found["budget"].split()[-1]) if found else None


def _handlers(document: Document) -> dict[str, str]:
    rows = [
        _bar(
            document,
            f"share_of_ideal_{kind}_{ms}ms",
            f"{'def' if kind == 'sync' else 'async def'}, {ms} ms, {slots} slots",
        )
        for kind, slots in document["concurrency"].items()
        for ms in (1, 10, 100)
    ]
    return {
        "handlers": _bars("How busy the slots are kept", document, rows, unit="share of slots / duration", digits=2)
    }


def _contention(document: Document) -> dict[str, str]:
    names = (("one", "1 worker"), ("two", "2 workers"), ("ten", "10 workers"))
    rates = [_bar(document, f"rate_{name}", label) for name, label in names]
    return {"contention": _bars("Workers on one queue", document, rates, unit="tasks per second, all together")}


def _retries(document: Document) -> dict[str, str]:
    rates = [
        _bar(document, "rate_calm", "no task fails"),
        _bar(document, "rate_storm", "half of them fail once: tasks"),
        _bar(document, "attempts_rate_storm", "the same: attempts", other=True),
    ]
    return {"retries": _bars("A storm of retries", document, rates, unit="per second")}


def _delayed(document: Document) -> dict[str, str]:
    names = (("first_start_ms", "first start"), ("lateness_p50_ms", "median"), ("lateness_p99_ms", "99th percentile"))
    rows = [_bar(document, name, label) for name, label in names]
    title = f"{document['tasks']:,} tasks that fall due at once: how late they start"
    return {"delayed": _bars(title, document, rows, unit="milliseconds after the moment that they are due")}


def _features(document: Document) -> dict[str, str]:
    rows = [
        _bar(document, "worker_cpu_us.plain", "a plain task, all of it", other=True),
        *(_bar(document, f"worker_cpu_us.{name}", name.replace("_", " ")) for name in document["variants"]),
    ]
    return {"features": _bars("What each feature adds", document, rows, unit="worker CPU, µs per task", digits=2)}


def _backlog(document: Document) -> dict[str, str]:
    names = {name: f"{length:,} in the queue" for name, length in document["backlogs"].items()}
    names["cold"] = f"{names['5m']}, its head not cached"
    rows = [_bar(document, f"claim_us_{name}", label) for name, label in names.items()]
    title = "The cost of a claim by the length of the queue"
    return {"backlog": _bars(title, document, rows, unit="CPU of the claiming server process, µs per task", digits=2)}


def _latency(document: Document) -> dict[str, str]:
    points = ("p50", "p99")
    owners = [
        ("", "pgtasks, from COMMIT"),
        ("floor_", "bare LISTEN/NOTIFY + claim"),
        ("from_call_", "pgtasks, from the call"),
    ]
    owners += [
        (f"{RIVAL}{name}.", f"{_title(document, name)}, from the call") for name in sorted_by(document, "p50_ms")
    ]
    idle = [
        _bar(document, f"{prefix}{point}_ms", label, kind=point, other=prefix not in {"", "from_call_"})
        for prefix, label in owners
        for point in points
    ]
    load = [
        _bar(document, f"{point}_ms_at_{share}", f"{share} % of capacity", kind=point)
        for share in (20, 50, 80)
        for point in points
    ]
    unit = "milliseconds, each step ten times the one before"
    return {
        "latency": _bars("How soon an idle worker starts a task", document, idle, unit=unit, digits=2, decades=True),
        "latency-load": _bars(
            "How soon a task starts under load, from the moment it was due",
            document,
            load,
            unit=unit,
            digits=1,
            decades=True,
        ),
    }


def _soak(document: Document) -> dict[str, str]:
    samples = [Sample(**each) for each in document["series"][0]]
    seconds = float(document["seconds"])
    edges = [seconds * number / TENTHS for number in range(TENTHS + 1)]
    claims = [claim_p99_ms(samples, start, end) for start, end in pairwise(edges)]
    sizes = [
        Line(
            "memory of the worker", [(one.at_s / 60, one.worker_mib) for one in samples if one.worker_mib is not None]
        ),
        Line("table of tasks, with its indexes", [(one.at_s / 60, one.tasks_mib) for one in samples]),
    ]
    minutes = {"x": "minutes", "categories": False}
    return {
        "soak": _lines("What must not grow", document, sizes, y="MiB", **minutes),
        "soak-claims": _lines(
            "The 99th percentile of claims",
            document,
            [Line("", [(number, value) for number, value in enumerate(claims, start=1) if value is not None])],
            x=f"tenth of {seconds / 60:g} minutes",
            y="milliseconds",
            digits=1,
        ),
        "soak-dead": _lines(
            "Rows of tasks that wait for vacuum",
            document,
            [Line("", [(one.at_s / 60, one.dead_rows) for one in samples])],
            y="rows",
            **minutes,
        ),
    }


def _rivals(document: Document, figure: str) -> list[Bar | None]:
    return [
        _bar(document, f"{RIVAL}{name}.{figure}", _title(document, name), other=True)
        for name in sorted_by(document, figure)
    ]


def _title(document: Document, name: str) -> str:
    return str(document["rivals"][name]["title"])


def _bar(document: Document, name: str, label: str, *, kind: str = "", other: bool = False) -> Bar | None:
    """Give a figure with its spread as a bar; None where it was not measured."""
    value = value_of(document, name)
    if value is None:
        return None
    low, high = document["spread"][name]
    return Bar(label, value, low, high, kind, other)


def _rounds(courses: Sequence[Sequence[float]]) -> list[Line]:
    return [Line(f"round {number}", list(enumerate(values, start=1))) for number, values in enumerate(courses, start=1)]


def _bars(title: str, document: Document, rows: Sequence[Bar | None], *, unit: str, **how: Any) -> str:
    found = [row for row in rows if row is not None]
    return bars(title, _subtitle(document, spread=True), found, unit=unit, **how) if found else ""


def _lines(title: str, document: Document, courses: Sequence[Line], **how: Any) -> str:
    found = [course for course in courses if course.points]
    return lines(title, _subtitle(document, spread=False), found, **{"categories": True, **how}) if found else ""


def _subtitle(document: Document, *, spread: bool) -> str:
    rounds, host = len(document["rounds"]), document["machine"]
    said = "1 round" if rounds == 1 else f"{rounds} rounds"
    if spread and rounds > 1:
        said = f"medians of {said}, whiskers from the lowest to the highest"
    return f"{said}; {host['processor']}, {host['cores']} cores, {document['finished_at'][:10]}"


_DRAW: dict[str, Callable[[Document], dict[str, str]]] = {
    "drain": _drain,
    "field": _field,
    "horizon": _horizon,
    "held": _held,
    "enqueue": _enqueue,
    "backlog": _backlog,
    "latency": _latency,
    "handlers": _handlers,
    "contention": _contention,
    "retries": _retries,
    "delayed": _delayed,
    "features": _features,
    "soak": _soak,
}
