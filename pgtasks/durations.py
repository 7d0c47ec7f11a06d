"""Time spans as people write them: ``90``, ``15m``, ``1h30m``, ``2d``."""

from __future__ import annotations

import re

_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604_800.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?[smhdw])+|\d+(?:\.\d+)?|\.\d+")


def is_duration(text: str) -> bool:
    """Tell whether a text is a time span."""
    return _DURATION.fullmatch(text) is not None


def seconds_in(text: str) -> float:
    """Give the seconds of a time span; a plain number is seconds. Raises ValueError."""
    if not is_duration(text):
        raise ValueError(f"{text!r} is no duration")
    return sum(float(number) * _UNITS_S[unit] for number, unit in re.findall(r"(\d*\.?\d+)([smhdw]?)", text))
