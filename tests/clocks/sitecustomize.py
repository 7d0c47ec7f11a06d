"""Shifts what Python gives for the time by as many seconds as a file says, which may change at any moment.

Python imports this by itself at its start when this folder is on PYTHONPATH. The C library's
time, and so what other languages' code in the process sees, stays as it is.
"""

import datetime as dt
import os
import time
import warnings
from datetime import datetime
from typing import Any

_PATH = os.environ["PGTASKS_TEST_CLOCK"]
_time, _time_ns, _gmtime, _localtime = time.time, time.time_ns, time.gmtime, time.localtime


def _shift_s() -> int:
    with open(_PATH, encoding="ascii") as file:  # noqa: PTH123 - pathlib is not imported in every process
        return int(file.read())


class _Kind(type):
    """Takes the datetimes that C code makes for its own."""

    def __instancecheck__(cls, one: object) -> bool:
        return isinstance(one, datetime)


class _Shifted(datetime, metaclass=_Kind):
    """A datetime whose present is that of the shifted clock."""

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> Any:
        return datetime.fromtimestamp(time.time(), tz)

    @classmethod
    def utcnow(cls) -> Any:
        return datetime.fromtimestamp(time.time(), dt.UTC).replace(tzinfo=None)


_Shifted.__name__ = _Shifted.__qualname__ = "datetime"
_Shifted.__module__ = "datetime"
time.time = lambda: _time() + _shift_s()
time.time_ns = lambda: _time_ns() + _shift_s() * 1_000_000_000
time.gmtime = lambda seconds=None: _gmtime(time.time() if seconds is None else seconds)
time.localtime = lambda seconds=None: _localtime(time.time() if seconds is None else seconds)
# Compiled code notes that the class is not the one it was built for; it goes on using the one it was.
warnings.filterwarnings("ignore", message="datetime.datetime size changed")
dt.datetime = _Shifted  # type: ignore[misc]  # a stand-in for the class
