"""Every error pgtasks raises, in one tree.

::

    PgtasksError
    ├── ConfigError             a setting, a flag or a registration is wrong
    │   ├── AppImportError      MODULE:APP could not be loaded
    │   └── ScheduleError       a cron expression, its time zone or a time asked of it is wrong
    ├── EnqueueError            a task was refused; nothing was inserted
    │   ├── PayloadError        the arguments are not JSON that PostgreSQL can keep
    │   └── UniqueConflict      a living task has this unique_key (on_conflict="raise")
    ├── NotFound                no such task, queue or worker
    ├── DatabaseError           PostgreSQL refused a statement
    │   └── DatabaseUnavailable unreachable, gone, read-only or overloaded: try again
    ├── SchemaError             the pgtasks schema is not the one this version needs
    │   ├── SchemaMissing
    │   ├── SchemaOutdated
    │   └── SchemaTooNew
    ├── LeaseLost               this attempt's lease ended; another worker may run the task
    ├── TaskTimeout             the handler ran longer than its timeout
    ├── ProcessDied             the process that ran the handler is gone, and the handler with it
    └── Steer                   raised by a handler to say what becomes of its task
        ├── PermanentError      failed for good: dead letter, whatever attempts are left
        ├── RetryLater          failed, next attempt after a chosen delay
        ├── Snooze              not now: again after a delay, no attempt charged
        └── Cancel              finished as cancelled

Each message says what happened and what to do about it.
"""

from __future__ import annotations

import signal as signals
from datetime import timedelta


class PgtasksError(Exception):
    """The base of every error that pgtasks raises on purpose."""


class ConfigError(PgtasksError):
    """A setting, a flag or a registration is wrong; the message names it and the fix."""


class AppImportError(ConfigError):
    """``MODULE:APP`` could not be loaded."""


class ScheduleError(ConfigError):
    """A cron expression, its time zone or a time asked of it is wrong; ``field`` says which part.

    It is one of the fields (``minute``, ``day-of-week``, ...), ``expression``, ``timezone``,
    ``seconds``, or the argument of a method. The message starts with it.
    """

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class EnqueueError(PgtasksError):
    """A task was refused; nothing was inserted."""


class PayloadError(EnqueueError):
    """The arguments are not JSON that PostgreSQL can keep; ``path`` says where."""

    def __init__(self, message: str, *, path: str = "payload") -> None:
        super().__init__(message)
        self.path = path


class UniqueConflict(EnqueueError):
    """A living task has this ``unique_key``; ``task_id`` names it.

    ``position`` is the place in a bulk enqueue, whose earlier tasks count as living.
    """

    def __init__(self, unique_key: str, task_id: int, *, position: int | None = None) -> None:
        place = "" if position is None else f"tasks[{position}]: "
        super().__init__(
            f"{place}unique_key {unique_key!r} belongs to living task {task_id}; "
            'use on_conflict="ignore" to get its id or "replace" to change it while it waits'
        )
        self.unique_key = unique_key
        self.task_id = task_id
        self.position = position


class NotFound(PgtasksError):
    """There is no such task, queue or worker."""


class DatabaseError(PgtasksError):
    """PostgreSQL refused a statement; ``sqlstate`` is its five-character code, if any.

    ``role`` is who lacked a right, where a right was lacking and it is known.
    """

    def __init__(self, message: str, *, sqlstate: str | None = None) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.role: str | None = None


class DatabaseUnavailable(DatabaseError):
    """The server cannot take this now: unreachable, gone, read-only, overloaded. Try again."""


class SchemaError(PgtasksError):
    """The ``pgtasks`` schema is not the one this version needs."""


class SchemaMissing(SchemaError):
    """The database has no pgtasks schema yet."""


class SchemaOutdated(SchemaError):
    """The schema is older than this version needs."""


class SchemaTooNew(SchemaError):
    """The schema is newer than this version knows."""


class LeaseLost(PgtasksError):
    """This attempt's lease ended; another worker may be running the task."""


class TaskTimeout(PgtasksError):
    """The handler ran longer than its timeout."""


class ProcessDied(PgtasksError):
    """The process that ran the handler ended before the handler did.

    ``signal`` is the number of the signal that killed it, ``exit_code`` what it exited with; both
    are None when that is not known. ``detail`` is what else is known, a sentence.
    """

    def __init__(self, *, signal: int | None = None, exit_code: int | None = None, detail: str = "") -> None:
        how = "ended"
        if signal is not None:
            how = f"was killed by {_signal_name(signal)} ({signal})"
        elif exit_code is not None:
            how = f"exited with code {exit_code}"
        super().__init__(f"its process {how}" + (f"; {detail}" if detail else ""))
        self.signal = signal
        self.exit_code = exit_code

    @classmethod
    def of(cls, returncode: int | None, *, detail: str = "") -> ProcessDied:
        """Give the error for a return code as ``subprocess`` reports it: negative for a signal."""
        if returncode is not None and returncode < 0:
            return cls(signal=-returncode, detail=detail)
        return cls(exit_code=returncode, detail=detail)


def _signal_name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        return "a signal"


class Steer(PgtasksError):
    """Raised by a handler to say what becomes of its task."""


class PermanentError(Steer):
    """The task failed for good: it becomes a dead letter, whatever attempts are left."""


class RetryLater(Steer):
    """The attempt failed; the next one starts after ``delay`` (seconds or timedelta)."""

    def __init__(self, delay: float | timedelta, message: str = "") -> None:
        super().__init__(message or f"retry later, in {seconds(delay):g} s")
        self.delay_s = seconds(delay)


class Snooze(Steer):
    """Not now: run the task again after ``delay`` (seconds or timedelta), no attempt charged."""

    def __init__(self, delay: float | timedelta) -> None:
        self.delay_s = seconds(delay)
        super().__init__(f"snoozed for {self.delay_s:g} s")


class Cancel(Steer):
    """The task is finished, as cancelled; ``reason`` goes into its history."""

    def __init__(self, reason: str = "cancelled by its handler") -> None:
        super().__init__(reason)
        self.reason = reason


DELAY_S_MAX = 366 * 86400.0


def seconds(delay: float | timedelta, *, field: str = "delay") -> float:
    """Give a delay in seconds.

    Raises ConfigError when it is negative, not a number, or longer than a year.
    """
    value = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{field} must be seconds or a timedelta, got {value!r}")
    if value < 0:
        raise ConfigError(f"{field} must not be negative, got {value!r}")
    if not value <= DELAY_S_MAX:
        raise ConfigError(f"{field} must be at most {DELAY_S_MAX:.0f} seconds (366 days), got {value!r}")
    return float(value)
