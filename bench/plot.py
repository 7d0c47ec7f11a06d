"""Charts as SVG, drawn from figures alone: bars with their spread, and lines.

A page shows them through `<img>`, on a light or on a dark ground, so each brings a ground of its own
and fetches nothing. The same figures give the same bytes: coordinates are rounded, nothing is random.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple
from xml.sax.saxutils import escape

WIDTH = 860
MARGIN = 24
HEAD = 68
FOOT = 56
LEGEND = 24
BAR, GAP, GROUP_GAP = 17, 5, 13
PLOT_HEIGHT = 270
TICKS = 5
# Average width of a letter of each size, in pixels: SVG cannot measure text before it is shown.
LETTER = {12: 6.5, 13: 8.0, 17: 9.5}
INK, MUTED, GRID, GROUND, EDGE = "#1f2328", "#59636e", "#e4e8ec", "#ffffff", "#d1d9e0"
# Told apart by people who see few colours, too.
COLOURS = ("#0969da", "#bc4c00", "#1a7f37", "#8250df", "#9a6700", "#59636e", "#cf222e", "#0b7a75")
OTHERS = "#9aa4ae"
FONT = "-apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"


class Bar(NamedTuple):
    """One bar: whose it is, of which kind where there are several, and its median, lowest and highest."""

    label: str
    value: float
    low: float
    high: float
    kind: str = ""
    # Drawn in grey: what we are compared with.
    other: bool = False


class Line(NamedTuple):
    """One course of a value."""

    label: str
    points: Sequence[tuple[float, float]]


class Scale(NamedTuple):
    """From values to pixels, evenly or by decades."""

    low: float
    high: float
    start: float
    end: float
    decades: bool = False

    def at(self, value: float) -> float:
        """Give the pixel of a value."""
        low, high = self.low, self.high
        if self.decades:
            value, low, high = math.log10(max(value, low)), math.log10(low), math.log10(high)
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Give the values to be named on the axis."""
        if self.decades:
            return [10.0**power for power in range(round(math.log10(self.low)), round(math.log10(self.high)) + 1)]
        step = _step(self.high - self.low)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [round(number * step, 10) for number in range(first, last + 1)]


def bars(
    title: str,
    subtitle: str,
    rows: Sequence[Bar],
    *,
    unit: str,
    digits: int = 0,
    decades: bool = False,
    limit: float | None = None,
) -> str:
    """Draw horizontal bars with their spread, bars of one label as a group; `limit` is a line across."""
    kinds = list(dict.fromkeys(row.kind for row in rows if row.kind))
    left = MARGIN + max(len(row.label) for row in rows) * LETTER[13] + 10
    numbers = [_number(row.value, digits) for row in rows]
    right = WIDTH - MARGIN - max(map(len, numbers)) * LETTER[12] - 12
    reach = [reached for row in rows for reached in (row.low, row.value, row.high)] + ([limit] if limit else [])
    scale = _scale(reach, left, right, decades=decades)
    top = HEAD + (LEGEND if kinds or limit else 0)
    tops = _tops(rows, top)
    bottom = tops[-1] + BAR + 8
    drawn = [*_head(title, subtitle), *_legend([(kind, COLOURS[at]) for at, kind in enumerate(kinds)], left)]
    drawn += _vertical_grid(scale, top - 4, bottom, unit, (left + right) / 2)
    seen = None
    for row, y, number in zip(rows, tops, numbers, strict=True):
        colour = COLOURS[kinds.index(row.kind)] if row.kind else OTHERS if row.other else COLOURS[0]
        drawn += _bar(row, y, scale, colour, number)
        if row.label != seen:
            size = sum(each.label == row.label for each in rows)
            middle = y + (size * (BAR + GAP) - GAP) / 2 + 4.5
            drawn.append(_text(left - 10, middle, row.label, size=13, anchor="end", bold=not row.other))
            seen = row.label
    if limit:
        drawn += _rule(scale.at(limit), top - 4, scale.at(limit), bottom, f"budget {_number(limit, digits)}")
    return _svg(title, bottom + FOOT, drawn)


def lines(
    title: str,
    subtitle: str,
    courses: Sequence[Line],
    *,
    x: str,
    y: str,
    digits: int = 0,
    decades: bool = False,
    categories: bool = False,
) -> str:
    """Draw courses over one axis; with `categories` each x that occurs has its name below it."""
    places = sorted({place for course in courses for place, _ in course.points})
    values = [value for course in courses for _, value in course.points]
    top = HEAD + (LEGEND if len(courses) > 1 else 0)
    bottom = top + PLOT_HEIGHT
    down = _scale(values, bottom, top, decades=decades)
    left = MARGIN + 18 + max(len(_number(tick, digits)) for tick in down.ticks()) * LETTER[12] + 8
    across = Scale(places[0], max(places[-1], places[0] + 1e-9), left + 8, WIDTH - MARGIN - 16)
    drawn = _head(title, subtitle)
    if len(courses) > 1:
        drawn += _legend([(course.label, COLOURS[at % len(COLOURS)]) for at, course in enumerate(courses)], left)
    for tick in down.ticks():
        level = down.at(tick)
        drawn.append(_stroke(left, level, WIDTH - MARGIN, level, GRID))
        drawn.append(_text(left - 8, level + 4, _number(tick, digits), size=12, anchor="end", colour=MUTED))
    for place in places if categories else across.ticks():
        drawn.append(_text(across.at(place), bottom + 18, f"{place:,g}", size=12, anchor="middle", colour=MUTED))
    drawn.append(_text((left + WIDTH - MARGIN) / 2, bottom + 40, x, size=12, anchor="middle", colour=MUTED))
    drawn.append(_turned(MARGIN + 8, (top + bottom) / 2, y))
    for at, course in enumerate(courses):
        drawn += _course(course, across.at, down.at, COLOURS[at % len(COLOURS)])
    return _svg(title, bottom + FOOT, drawn)


def _scale(values: Sequence[float], start: float, end: float, *, decades: bool) -> Scale:
    high = max(values)
    if decades:
        low = min(value for value in values if value > 0)
        return Scale(
            10.0 ** math.floor(math.log10(low / 1.5)), 10.0 ** math.ceil(math.log10(high)), start, end, decades
        )
    low = min(0.0, *values)
    step = _step((high - low) or 1.0)
    return Scale(math.floor(low / step) * step, math.ceil((high or 1.0) / step) * step, start, end)


def _step(span: float) -> float:
    rough = span / TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)


def _tops(rows: Sequence[Bar], top: float) -> list[float]:
    tops = [top + 4.0]
    for before, row in pairwise(rows):
        grouped = before.kind and before.label == row.label
        tops.append(tops[-1] + BAR + (GAP if grouped else GROUP_GAP))
    return tops


def _bar(row: Bar, y: float, scale: Scale, colour: str, number: str) -> list[str]:
    start, end = sorted((scale.at(scale.low if scale.decades else 0.0), scale.at(row.value)))
    low, high, middle = scale.at(row.low), scale.at(row.high), y + BAR / 2
    size = f'width="{max(end - start, 1):.1f}" height="{BAR}"'
    drawn = [f'<rect x="{start:.1f}" y="{y:.1f}" {size} rx="2" fill="{colour}"/>']
    if high - low > 1:
        drawn.append(_stroke(low, middle, high, middle, INK, width=1.4))
        drawn += [_stroke(place, middle - 4, place, middle + 4, INK, width=1.4) for place in (low, high)]
    return [*drawn, _text(max(end, high) + 8, middle + 4.2, number, size=12)]


def _course(course: Line, across: Callable[[float], float], down: Callable[[float], float], colour: str) -> list[str]:
    places = [f"{across(place):.1f},{down(value):.1f}" for place, value in course.points]
    drawn = [f'<polyline points="{" ".join(places)}" fill="none" stroke="{colour}" stroke-width="2"/>']
    if len(places) <= 24:  # noqa: PLR2004 - more dots than these would hide the line
        drawn += [
            f'<circle cx="{place.partition(",")[0]}" cy="{place.partition(",")[2]}" r="3" fill="{colour}"/>'
            for place in places
        ]
    return drawn


def _vertical_grid(scale: Scale, top: float, bottom: float, unit: str, middle: float) -> list[str]:
    drawn = []
    for tick in scale.ticks():
        place = scale.at(tick)
        drawn.append(_stroke(place, top, place, bottom, GRID))
        drawn.append(_text(place, bottom + 17, f"{tick:,g}", size=12, anchor="middle", colour=MUTED))
    return [*drawn, _text(middle, bottom + 38, unit, size=12, anchor="middle", colour=MUTED)]


def _rule(x1: float, y1: float, x2: float, y2: float, name: str) -> list[str]:
    dashed = _stroke(x1, y1, x2, y2, "#cf222e", width=1.4).replace("/>", ' stroke-dasharray="5 4"/>')
    return [dashed, _text(x1 + 4, y1 + 1, name, size=12, colour="#cf222e")]


def _head(title: str, subtitle: str) -> list[str]:
    return [
        _text(MARGIN, 32, title, size=17, bold=True),
        _text(MARGIN, 52, subtitle, size=12, colour=MUTED),
    ]


def _legend(entries: Sequence[tuple[str, str]], left: float) -> list[str]:
    drawn, place = [], left
    for name, colour in entries:
        drawn.append(f'<rect x="{place:.1f}" y="{HEAD + 1}" width="11" height="11" rx="2" fill="{colour}"/>')
        drawn.append(_text(place + 16, HEAD + 11, name, size=12))
        place += 16 + len(name) * LETTER[12] + 18
    return drawn


def _text(
    x: float, y: float, text: str, *, size: int, anchor: str = "start", colour: str = INK, bold: bool = False
) -> str:
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}"{weight}>'
        f"{escape(text)}</text>"
    )


def _turned(x: float, y: float, text: str) -> str:
    return (
        f'<text transform="translate({x:.1f} {y:.1f}) rotate(-90)" font-size="12" text-anchor="middle" '
        f'fill="{MUTED}">{escape(text)}</text>'
    )


def _stroke(x1: float, y1: float, x2: float, y2: float, colour: str, *, width: float = 1) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width:g}"/>'


def _number(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}"


def _svg(title: str, height: float, drawn: Sequence[str]) -> str:
    body = "\n".join(f"  {each}" for each in drawn)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" '
        f'height="{height:.0f}" role="img" font-family="{FONT}">\n'
        f"  <title>{escape(title)}</title>\n"
        f'  <rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:.0f}" rx="8" fill="{GROUND}" '
        f'stroke="{EDGE}"/>\n{body}\n</svg>\n'
    )
