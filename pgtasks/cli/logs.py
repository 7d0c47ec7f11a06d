"""Log lines of a worker: one per event, as text or JSON, that data cannot forge.

A newline in a task's name would start what looks like another line; control characters are
therefore written out. The lines of a traceback are indented, and no event begins with a blank.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pgtasks.cli.escape import escape, shortened
from pgtasks.context import RUNNING
from pgtasks.settings import LogFormat

FIELD_CHARACTERS_MAX = 2000
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "pgtasks"}
# As wide as the other levels, so that the events of a log stand below each other.
_LEVELS = {"WARNING": "WARN", "CRITICAL": "FATAL"}
_plain = re.compile(r"[^\s\"'=\\]+")


def configure(log_format: LogFormat, level: str, worker: str = "") -> None:
    """Send every log record of this process to standard error in one format.

    Where several workers write to the same place, each line carries the ``worker`` it is from.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(Origin(worker))
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines())
    # A closed standard error must not cost a task.
    logging.raiseExceptions = False
    logging.captureWarnings(capture=True)
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    # Its debug lines are about event loops, not about tasks.
    logging.getLogger("asyncio").setLevel(max(logging.INFO, getattr(logging, level.upper())))


def last_line(command: str, message: str, exit_code: int, trace: str = "") -> str:
    """Give the line of JSON that says why a command ended, or did not begin."""
    record = logging.LogRecord("pgtasks.cli", logging.ERROR, "", 0, "command failed", None, None)
    record.pgtasks = {"command": command, "error": message, "exit_code": exit_code}
    record.exc_text = trace or None
    return JsonLines().format(record) + "\n"


class Origin(logging.Filter):
    """Lets every record pass, with the task in whose handler it was made, and its worker."""

    def __init__(self, worker: str = "") -> None:
        super().__init__()
        self._worker = worker

    def filter(self, record: logging.LogRecord) -> bool:
        """Add what the record does not say itself."""
        facts = vars(record)
        task = RUNNING.get()
        if task is not None:
            # All or none: an event about another task says which.
            event = facts.get("pgtasks")
            if "task_id" not in (event if isinstance(event, Mapping) else facts):
                for key, value in (("task_id", task.id), ("task", task.name), ("attempt", task.attempt)):
                    facts.setdefault(key, value)
        if self._worker:
            facts.setdefault("worker", self._worker)
        return True


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Give a record's own facts: those of an event, and whatever `extra` brought."""
    extra = {key: value for key, value in vars(record).items() if key not in _STANDARD}
    event = getattr(record, "pgtasks", None)
    return {**extra, **(event if isinstance(event, Mapping) else {})}


class TextLines(logging.Formatter):
    """`2026-11-29T21:00:00.123Z INFO  worker started queues=default,mail`."""

    def format(self, record: logging.LogRecord) -> str:
        """Give a record as one line, with a traceback's lines indented below it."""
        source = "" if record.name.startswith("pgtasks") else f"{escape(record.name)}: "
        facts = fields_of(record)
        trace = _trace(record) or _told_trace(record, facts)
        fields = "".join([f" {_name(key)}={_shown(value)}" for key, value in facts.items()])
        level = _LEVELS.get(record.levelname, record.levelname)
        line = f"{_timestamp(record)} {level:<5} {source}{escape(record.getMessage())}{fields}"
        return line + "".join(f"\n  {escape(part)}" for part in trace.splitlines())


class JsonLines(logging.Formatter):
    """One JSON object per line: ts, level, logger, event, and the event's fields beside them."""

    def format(self, record: logging.LogRecord) -> str:
        """Give a record as one line of ASCII."""
        document = {
            "ts": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        for key, value in fields_of(record).items():
            document[f"{key}_" if key in document else key] = value
        trace = _trace(record)
        if trace:
            document["traceback"] = trace
        return _json(document).replace("\x7f", "\\u007f")


def _json(document: dict[str, Any]) -> str:
    try:
        return json.dumps(document, default=str, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return json.dumps({key: str(value) for key, value in document.items()}, default=str)


def _timestamp(record: logging.LogRecord) -> str:
    return f"{_second(int(record.created))}.{int(record.msecs):03d}Z"


@lru_cache(maxsize=4)
def _second(created: int) -> str:
    """Give a second's text, which the lines of a busy moment have in common."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(created))


def _trace(record: logging.LogRecord) -> str:
    if record.exc_info and not record.exc_text:
        record.exc_text = logging.Formatter().formatException(record.exc_info)
    return record.exc_text or ""


def _told_trace(record: logging.LogRecord, facts: dict[str, Any]) -> str:
    """Take an event's own traceback, that of a task, out of its facts."""
    event = getattr(record, "pgtasks", None)
    told = isinstance(event, Mapping) and "traceback" in event
    return str(facts.pop("traceback")) if told else ""


@lru_cache(maxsize=200)
def _name(key: str) -> str:
    """Give the name of a field, of which there are few."""
    return escape(key)


def _shown(value: object) -> str:
    if type(value) is int:
        return str(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple | set | frozenset):
        value = ",".join(map(str, value))
    text = shortened(escape(value), FIELD_CHARACTERS_MAX)
    return text if _plain.fullmatch(text) else '"' + text.replace('"', '\\"') + '"'
