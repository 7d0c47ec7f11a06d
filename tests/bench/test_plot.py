"""Charts are SVG that any browser draws: they name their units, and nothing leaves the frame."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from bench import plot
from bench.plot import Bar, Line, Scale

RATES = [Bar("pgtasks", 81_678, 77_784, 87_862), Bar("a < b & c", 490.4, 480, 512, other=True)]
LATENCIES = [
    Bar("idle", 0.8, 0.7, 0.9, "p50"),
    Bar("idle", 4.0, 3.0, 5.0, "p99"),
    Bar("busy", 2.0, 1.8, 2.2, "p50"),
    Bar("busy", 70.0, 30.0, 140.0, "p99"),
]
COURSES = [Line("first", [(1, 4.0), (2, 5.5)]), Line("second", [(1, 3.0), (2, 9.0)])]
CHARTS = {
    "bars": plot.bars("Rates", "2 rounds", RATES, unit="tasks per second", limit=70_000),
    "groups": plot.bars("Latency", "2 rounds", LATENCIES, unit="milliseconds", digits=1, decades=True),
    "lines": plot.lines("Cost", "2 rounds", COURSES, x="tenth", y="µs per task", categories=True),
}


def elements(svg: str) -> list[ET.Element]:
    """Parse a chart."""
    return list(ET.fromstring(svg).iter())  # noqa: S314 - drawn by the code under test


def texts(svg: str) -> set[str]:
    """Return what a chart says."""
    return {each.text or "" for each in elements(svg)}


@pytest.mark.parametrize("name", CHARTS)
def test_nothing_leaves_the_frame(name: str) -> None:
    """Every mark is inside of it; a text begins, ends or has its middle inside."""
    top, *others = elements(CHARTS[name])
    width, height = float(top.attrib["width"]), float(top.attrib["height"])
    for each in others:
        for attribute, limit in (("x", width), ("x1", width), ("x2", width), ("y", height), ("y1", height)):
            assert 0 <= float(each.attrib.get(attribute, 0)) <= limit, each.attrib
        if each.tag.endswith("rect"):
            assert float(each.attrib["x"]) + float(each.attrib["width"]) <= width


def test_a_chart_says_what_it_shows() -> None:
    """Title, units, names and values; what XML would take for markup is escaped."""
    assert {"Rates", "2 rounds", "tasks per second", "pgtasks", "a < b & c", "81,678", "490"} <= texts(CHARTS["bars"])
    assert {"milliseconds", "p50", "p99", "idle", "70.0"} <= texts(CHARTS["groups"])
    assert {"first", "second", "tenth", "µs per task"} <= texts(CHARTS["lines"])


def test_a_chart_has_a_ground_and_fetches_nothing() -> None:
    """So that it can be read on a dark page, and tells nobody who reads it."""
    for svg in CHARTS.values():
        assert f'fill="{plot.GROUND}"' in svg
        assert svg.count("http") == 1  # the namespace
        assert "<style" not in svg


def test_longer_bars_are_higher_values() -> None:
    """From 0 on, evenly."""
    first, second = (each for each in elements(CHARTS["bars"]) if each.attrib.get("rx") == "2")
    assert float(first.attrib["width"]) / float(second.attrib["width"]) == pytest.approx(81_678 / 490.4, rel=0.05)


def test_a_gain_is_drawn_to_the_other_side() -> None:
    """Below 0 is left of 0, and inside."""
    rows = [Bar("a cost", 2.0, 1.5, 2.5), Bar("a gain", -1.0, -1.2, -0.8)]
    cost, gain = (each for each in elements(plot.bars("t", "s", rows, unit="u")) if each.attrib.get("rx") == "2")
    assert float(gain.attrib["x"]) + float(gain.attrib["width"]) == pytest.approx(float(cost.attrib["x"]), abs=0.2)


def test_scales() -> None:
    """Round numbers on the axis; by decades each is ten times the one before."""
    assert Scale(0, 125_000, 0, 500).ticks() == [0, 25_000, 50_000, 75_000, 100_000, 125_000]
    decades = Scale(0.1, 100, 0, 300, decades=True)
    assert decades.ticks() == pytest.approx([0.1, 1, 10, 100])
    assert [decades.at(value) for value in (0.1, 1, 100)] == pytest.approx([0, 100, 300])


def test_the_same_figures_give_the_same_bytes() -> None:
    """Otherwise the pictures of the page could not be compared with what was measured."""
    assert plot.lines("Cost", "2 rounds", COURSES, x="tenth", y="µs per task", categories=True) == CHARTS["lines"]
