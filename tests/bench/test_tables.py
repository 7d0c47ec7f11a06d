"""A result's rivals are rows under ours, with what is measured in the same way, and with the run they came from."""

from __future__ import annotations

from typing import Any

from bench import tables
from bench.report import Budget, Figures, Key, document

KEYS = (
    Key("rate", "tasks per second"),
    Key("ratio_to.quick", "ours against it", 2, Budget(least=2.0)),
    Key("ratio_to.slow", "ours against it", 2),
    Key("ratio_to.absent", "ours against it", 2),
    Key("rival.quick.rate", "tasks per second"),
    Key("rival.slow.rate", "tasks per second"),
    Key("rival.absent.rate", "tasks per second"),
)
ROUNDS: list[Figures] = [
    {"rate": 1000.0, "ratio_to.slow": 20.0, "rival.slow.rate": 50.0, "ratio_to.quick": 1.5, "rival.quick.rate": 660.0},
    {"rate": 1200.0, "ratio_to.slow": 24.0, "rival.slow.rate": 50.0, "ratio_to.quick": 1.7, "rival.quick.rate": 700.0},
]


def made(scenario: str = "drain", **more: Any) -> dict[str, Any]:
    """Make a document with three rivals, of which one could not run."""
    host = {
        "processor": "A | B",
        "cores": 2,
        "memory_gib": 4.0,
        "system": "Linux",
        "release": "6.1-x",
        "python": "3.11",
    }
    facts = {
        "tasks": 5000,
        "command": "./dev bench drain --rivals quick,slow,absent",
        "rivals": {name: {"title": name.upper(), **more} for name in ("slow", "quick", "absent")},
        "machine": {**host, "load_before": [0.5], "load_after": [1.5]},
        "settings": {"server_version": "18.1"},
    }
    return document(scenario, KEYS, ROUNDS, facts, ["absent: it has no package for this Python"])


def test_each_rival_is_a_row_under_ours() -> None:
    """The fastest first; a missed budget and one that could not run are both to be seen."""
    said = tables.result(made(), KEYS).splitlines()
    assert said[2].startswith("| `rate`: tasks per second | 1,100 |")
    assert said[4:9] == [
        "| queue | pgtasks against it, both at their best | tasks/s |",
        "|---|--:|--:|",
        "| **pgtasks** |  | 1,100 (1,000 to 1,200) |",
        "| QUICK | 1.60 (1.50 to 1.70); >= 2, missed | 680 (660 to 700) |",
        "| SLOW | 22.00 (20.00 to 24.00) | 50 |",
    ]
    assert said[9] == "| ABSENT | - | - |"


def test_the_run_and_what_is_missing_stand_below() -> None:
    """The command, how much, when, where, and beside which load."""
    run, missing = tables.result(made(), KEYS).splitlines()[-3::2]
    for part in (
        "`./dev bench drain --rivals quick,slow,absent`",
        "5,000 tasks",
        "2 rounds",
        "Linux 6.1,",
        "0.5 before",
    ):
        assert part in run
    assert missing == "Not measured in this run: absent: it has no package for this Python."


def test_the_commit_stands_with_the_versions() -> None:
    """Where it is known: older documents have none."""
    document = made()
    assert "PostgreSQL 18.1. Load" in tables.place(document)
    document["machine"]["commit"] = "abc1234+"
    assert "PostgreSQL 18.1, commit abc1234+. Load" in tables.place(document)


def test_ours_is_the_figure_that_is_measured_as_theirs() -> None:
    """A rival's time from the call stands under ours from the call, and the lowest time comes first."""
    keys = (
        *(Key(name, "ms", 1) for name in ("p50_ms", "from_call_p50_ms", "rival.slow.p50_ms", "rival.quick.p50_ms")),
    )
    figures: Figures = {"p50_ms": 1.0, "from_call_p50_ms": 2.0, "rival.slow.p50_ms": 9.0, "rival.quick.p50_ms": 3.0}
    facts = {name: made()[name] for name in ("tasks", "command", "rivals", "machine", "settings")}
    facts["rivals"] = {name: facts["rivals"][name] for name in ("slow", "quick")}
    said = tables.result(document("latency", keys, [figures], facts, []), keys)
    rows = [line for line in said.splitlines() if line.startswith(("| **", "| QUICK", "| SLOW"))]
    assert rows == ["| **pgtasks** | 2.0 |", "| QUICK | 3.0 |", "| SLOW | 9.0 |"]


def test_the_settings_of_each_rival_are_given_once() -> None:
    """With the links of who says so, and the scenarios in which it was measured."""
    more: dict[str, Any] = {
        "packages": ["pkg==1"],
        "settings": "fast | mode.",
        "sources": ["https://a.example/x (note)", "its README"],
        "keeps": "A row.",
    }
    said = tables.settings({"drain": made(**more), "held": made("held", **more)})
    assert said.count("QUICK") == 1
    row = next(line for line in said.splitlines() if line.startswith("| QUICK"))
    assert row == (
        "| QUICK | `pkg==1` | fast \\| mode. Sources: [1](https://a.example/x) (note), its README "
        "| A row. | [drain](#drain), [held](#held) |"
    )
