"""Counts, rates and times in few characters."""

from __future__ import annotations

ESTIMATE_SHOWN_EXACTLY_MAX = 100_000
_THOUSAND = 1000
_NO_DECIMALS = 100
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86400


def number(count: int, *, estimated: bool = False) -> str:
    """Give a count: 12,345, or ~1.2M when it is an estimate above 100,000; ~0 may be a few."""
    if not estimated or count <= ESTIMATE_SHOWN_EXACTLY_MAX:
        return f"{'~' if estimated else ''}{count:,}"
    return f"~{_compact(count)}"


def _compact(count: float) -> str:
    for unit in ("", "k", "M", "G"):
        if count < _THOUSAND - 0.5 or unit == "G":
            return f"{count:.0f}{unit}" if unit in {"", "k"} or count >= _NO_DECIMALS else f"{count:.1f}{unit}"
        count /= _THOUSAND
    raise AssertionError(count)


def rate(per_s: float, *, estimated: bool = False) -> str:
    """Give a rate per second in few characters."""
    return f"~{_rate(per_s)}" if estimated else _rate(per_s)


def _rate(per_s: float) -> str:
    if per_s >= 99.5:  # noqa: PLR2004 - from here on decimals say nothing
        return f"{per_s:,.0f}"
    if 0 < per_s < 0.05:  # noqa: PLR2004 - would round to nothing
        return "<0.1"
    return f"{per_s:.1f}" if per_s else "0"


def age(seconds: float | None) -> str:
    """Give a time span in its two largest units: 5s, 3m12s, 2h05m, 4d03h."""
    if seconds is None:
        return "-"
    whole = max(0, int(seconds))
    if whole < _MINUTE_S:
        return f"{whole}s"
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S}m{whole % _MINUTE_S:02d}s"
    if whole < _DAY_S:
        return f"{whole // _HOUR_S}h{whole % _HOUR_S // _MINUTE_S:02d}m"
    return f"{whole // _DAY_S}d{whole % _DAY_S // _HOUR_S:02d}h"


def late(seconds: float | None) -> str:
    """Give how late something was: 8ms, 2.5s, 3m12s; a clock that was set back makes nothing early."""
    if seconds is None:
        return "-"
    if seconds >= 10:  # noqa: PLR2004 - from here on decimals say nothing
        return age(seconds)
    return f"{seconds:.1f}s" if seconds >= 1 else f"{max(0.0, seconds) * 1000:.0f}ms"
