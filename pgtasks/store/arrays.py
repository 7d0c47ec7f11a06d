"""PostgreSQL's array literals: what a batch carries goes out as one text for each column.

psycopg adapts the items of a list one by one, which costs ten times as much for numbers, and for texts a
tenth of a failing task's time.
"""

from __future__ import annotations

from collections.abc import Iterable


def numbers(values: Iterable[float]) -> str:
    """Give an array of numbers."""
    return "{" + ",".join(map(str, values)) + "}"


def texts(values: Iterable[str | None]) -> str:
    """Give an array of texts, None as NULL."""
    items = list(values)
    quoted = {item: "NULL" if item is None else f'"{_escaped(item)}"' for item in set(items)}
    return "{" + ",".join([quoted[item] for item in items]) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"")
