"""Events: one log line each, with its facts as fields, so that text and JSON say the same.

Who subscribes hears all of them, whatever the log level is; metrics are made of that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

LOGGER = logging.getLogger("pgtasks.worker")
Fields = Mapping[str, object]
Subscriber = Callable[[str, Fields], None]
_SUBSCRIBERS: list[Subscriber] = []


def subscribe(tell: Subscriber) -> Callable[[], None]:
    """Call ``tell`` with each event and its fields, in the thread that emits it; gives what ends that.

    It must be quick. What it raises is logged and goes no further.
    """
    _SUBSCRIBERS.append(tell)
    return lambda: _SUBSCRIBERS.remove(tell)


def emit(level: int, event: str, /, **fields: object) -> None:
    """Log an event; the fields become the record's ``pgtasks`` attribute, payloads never do."""
    for tell in _SUBSCRIBERS:
        try:
            tell(event, fields)
        except Exception:
            LOGGER.exception("event subscriber failed", extra={"pgtasks": {"about": event}})
    if LOGGER.isEnabledFor(level):
        # What `LOGGER.log` does, but for its search for the line it was called in, which is always this one.
        LOGGER.handle(LOGGER.makeRecord(LOGGER.name, level, __file__, 0, event, (), None, "emit", {"pgtasks": fields}))


def debug(event: str, /, **fields: object) -> None:
    """Log an event that only somebody who looks for a fault wants to see."""
    emit(logging.DEBUG, event, **fields)


def info(event: str, /, **fields: object) -> None:
    """Log an event of normal work that an operator wants to see."""
    emit(logging.INFO, event, **fields)


def warning(event: str, /, **fields: object) -> None:
    """Log an event that deserves a look."""
    emit(logging.WARNING, event, **fields)


def error(event: str, /, **fields: object) -> None:
    """Log an event that lost something or needs somebody."""
    emit(logging.ERROR, event, **fields)
