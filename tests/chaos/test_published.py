"""What the pages say of the chaos suite is what its code and its committed run say."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.chaos import published, report
from tests.chaos.history import Deed, History
from tests.chaos.test_checker import good

PAGES = [(path, name) for path, texts in published.pages(None).items() for name in texts]


@pytest.mark.parametrize(("path", "name"), PAGES, ids=str)
def test_the_page_says_what_the_suite_says(path: Path, name: str) -> None:
    """`./dev chaos --publish` would change nothing."""
    page = path.read_text(encoding="utf-8")
    text = published.pages(published.committed())[path][name]
    assert published.filled(page, name, text) == page, "run: ./dev chaos --publish"


def test_the_committed_run_is_one_to_be_published() -> None:
    """A run of half an hour, without a planted bug, in which nothing was lost and no invariant was violated."""
    document = published.committed()
    if document is None:
        pytest.skip(published.NOTHING)
    assert (document["lost"], document["completed_twice"], document["failures"]) == (0, 0, [])
    assert document["duration_s"] >= 1800
    assert document["plant"] is None
    assert document["violations"] == []
    assert document["recovery_s"]["count"] > 0


def document_of(history: History) -> dict[str, Any]:
    """Return a document as a run writes it, after a journey through JSON."""
    machine = {"processor": "a processor", "cores": 2, "memory_gib": 8, "python": "3.11.7"}
    made = {
        "command": "./dev chaos",
        "workers": 2,
        "lease_s": 2.0,
        "sweep_s": 0.5,
        "finished_at": "2026-11-30T00:00:00",
        "machine": machine,
        **report.figures(history, [], {"crash_server": 3, "kill_backend": 1, "failover": 2}),
    }
    document: dict[str, Any] = json.loads(json.dumps(made))
    return document


def test_figures_count_what_happened() -> None:
    """On the history in which a bit of everything happens, with the worker of the paused task killed."""
    history = good()
    history.deeds.append(Deed("kill", 24, 24, 20))
    del history.marks[5]  # it was killed before its effect
    document = document_of(history)
    assert document["tasks"] == 8
    assert (document["completed"], document["dead"], document["cancelled"]) == (6, 1, 1)
    assert (document["committed"], document["rolled_back"], document["existing"]) == (7, 1, 1)
    assert (document["lost"], document["completed_twice"], document["reruns"]) == (0, 0, 0)
    assert document["recovery_s"] == {"count": 1, "p50": 0.0, "p99": 0.0, "max": 0.0}
    assert "2 failovers" in published.line(document)
    assert "4 server crashes" in published.line(document)
    assert "**0**" in published.run(document)


def test_a_lost_task_and_a_double_one_are_counted() -> None:
    """These two figures are what everything is about."""
    history = good()
    history.rows.append(history.rows[1])
    del history.rows[0]
    document = document_of(history)
    assert (document["lost"], document["completed_twice"]) == (1, 1)


def test_quantiles_of_few_values_are_among_them() -> None:
    """The largest stands for the 99th percentile of a few."""
    assert report.quantiles([]) == {"count": 0, "p50": None, "p99": None, "max": None}
    assert report.quantiles([1.0, 2.0, 9.0]) == {"count": 3, "p50": 2.0, "p99": 9.0, "max": 9.0}
