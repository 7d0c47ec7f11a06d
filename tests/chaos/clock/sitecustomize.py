"""Shifts the wall clock of the Python process that loads this, by CHAOS_CLOCK_SHIFT_S seconds.

Python imports a module of this name before everything else. The monotonic clock stays as it is, as it does when
somebody sets the clock of a machine.
"""

import datetime as dt
import os
import time
from collections.abc import Callable
from typing import Any, Self

_SHIFT_S = float(os.environ.get("CHAOS_CLOCK_SHIFT_S", "0"))
_time, _time_ns, _strftime = time.time, time.time_ns, time.strftime


class _AnyDatetime(type):
    """What C code makes, and what was made before, counts as an instance of the shifted classes too."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return type.__instancecheck__(cls.__mro__[1], instance)


class _ShiftedDatetime(dt.datetime, metaclass=_AnyDatetime):
    __slots__ = ()  # as large as the real one, which C code checks

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> Self:
        return cls.fromtimestamp(time.time(), tz)

    @classmethod
    def utcnow(cls) -> Self:
        return cls.fromtimestamp(time.time(), dt.UTC).replace(tzinfo=None)

    @classmethod
    def today(cls) -> Self:
        return cls.fromtimestamp(time.time())


class _ShiftedDate(dt.date, metaclass=_AnyDatetime):
    __slots__ = ()

    @classmethod
    def today(cls) -> Self:
        return cls.fromtimestamp(time.time())


def _of_now(function: Callable[[float], Any]) -> Callable[..., Any]:
    def shifted(at: float | None = None) -> Any:
        return function(time.time() if at is None else at)

    return shifted


def _shifted_strftime(form: str, at: Any = None) -> str:
    return _strftime(form, time.localtime() if at is None else at)


def _shift() -> None:
    _ShiftedDatetime.__name__ = _ShiftedDatetime.__qualname__ = "datetime"
    _ShiftedDate.__name__ = _ShiftedDate.__qualname__ = "date"
    _ShiftedDatetime.__module__ = _ShiftedDate.__module__ = "datetime"
    time.time = lambda: _time() + _SHIFT_S
    time.time_ns = lambda: _time_ns() + int(_SHIFT_S * 1e9)
    time.localtime = _of_now(time.localtime)
    time.gmtime = _of_now(time.gmtime)
    time.ctime = _of_now(time.ctime)
    time.strftime = _shifted_strftime
    dt.datetime = _ShiftedDatetime  # type: ignore[misc]  # a class stands in for a class
    dt.date = _ShiftedDate  # type: ignore[misc]  # a class stands in, as above


if _SHIFT_S != 0.0:
    _shift()
