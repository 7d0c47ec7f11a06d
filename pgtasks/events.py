"""Events: one log line each, with its facts as fields, so that text and JSON say the same."""

from __future__ import annotations

import logging

LOGGER = logging.getLogger("pgtasks.worker")


def emit(level: int, event: str, /, **fields: object) -> None:
    """Log an event; the fields become the record's ``pgtasks`` attribute, payloads never do."""
    if LOGGER.isEnabledFor(level):
        LOGGER.log(level, event, extra={"pgtasks": fields})


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
