"""pgtasks: a task queue and cron scheduler that needs nothing but PostgreSQL."""

from __future__ import annotations

from pgtasks.app import App, Task
from pgtasks.context import Context
from pgtasks.cron import CronSchedule
from pgtasks.errors import (
    Cancel,
    ConfigError,
    DatabaseError,
    DatabaseUnavailable,
    EnqueueError,
    LeaseLost,
    NotFound,
    PayloadError,
    PermanentError,
    PgtasksError,
    RetryLater,
    ScheduleError,
    SchemaError,
    Snooze,
    TaskTimeout,
    UniqueConflict,
)
from pgtasks.handlers import ArgumentsError
from pgtasks.model import Enqueued, EnqueuedMany, NewTask
from pgtasks.retry import Retry

__all__ = [
    "App",
    "ArgumentsError",
    "Cancel",
    "ConfigError",
    "Context",
    "CronSchedule",
    "DatabaseError",
    "DatabaseUnavailable",
    "EnqueueError",
    "Enqueued",
    "EnqueuedMany",
    "LeaseLost",
    "NewTask",
    "NotFound",
    "PayloadError",
    "PermanentError",
    "PgtasksError",
    "Retry",
    "RetryLater",
    "ScheduleError",
    "SchemaError",
    "Snooze",
    "Task",
    "TaskTimeout",
    "UniqueConflict",
    "__version__",
]

__version__ = "0.1.0"
