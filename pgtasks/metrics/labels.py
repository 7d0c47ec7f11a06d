"""Label values: bounded in number and in length, and such that every scraper can read the page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

from pgtasks.engine.meter import LABELS_MAX, OTHER

CHARACTERS_MAX = 200
# Control characters and lone surrogates, which UTF-8 cannot write.
_unsafe = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
T = TypeVar("T")


def label(value: object) -> str:
    r"""Give a value as a label, with what cannot stand on the page written as \xNN or \uNNNN."""
    # A database in SQL_ASCII sends text as bytes.
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    text = _unsafe.sub(lambda match: ascii(match[0])[1:-1], text)
    return text if len(text) <= CHARACTERS_MAX else text[: CHARACTERS_MAX - 1] + "…"


def bounded(found: Mapping[str, T]) -> list[tuple[str, list[T]]]:
    """Give values by label: the first LABELS_MAX by name each, all others together, which come last."""
    grouped: dict[str, list[T]] = {}
    for name in sorted(found):
        shown = label(name)
        key = shown if shown in grouped or len(grouped) < LABELS_MAX else OTHER
        grouped.setdefault(key, []).append(found[name])
    return list(grouped.items())
