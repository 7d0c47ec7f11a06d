"""A worker's log lines: one per event, in text or JSON, that nothing in them can forge."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

import pytest

from pgtasks.cli.logs import JsonLines, Origin, TextLines
from pgtasks.context import RUNNING
from pgtasks.model import Claimed

FORGERY = "x\n2026-11-29T21:00:00.000Z INFO  worker stopped\x1b[2J"


def record(message: str, level: int = logging.INFO, name: str = "pgtasks.worker", **extra: Any) -> logging.LogRecord:
    """Return a log record of a fixed moment."""
    made = logging.LogRecord(name, level, __file__, 1, message, None, None)
    made.created, made.msecs = 1796000400.123, 123.0
    for key, value in extra.items():
        setattr(made, key, value)
    return made


def test_text_is_one_line_with_the_fields_behind() -> None:
    """Quoted where they hold blanks."""
    line = TextLines().format(
        record("worker started", pgtasks={"queues": ["a", "b"], "name": "host one", "lease_s": 30.0, "empty": ""})
    )
    assert line == '2026-11-30T01:00:00.123Z INFO  worker started queues=a,b name="host one" lease_s=30 empty=""'


def test_other_loggers_are_named() -> None:
    """A handler's own lines carry the task they belong to."""
    line = TextLines().format(record("hello", logging.WARNING, "shop.mail", task_id=7, attempt=2))
    assert line.endswith("WARN  shop.mail: hello task_id=7 attempt=2")


def test_text_cannot_be_forged() -> None:
    """Not by a message, a field's value or its name."""
    line = TextLines().format(record(FORGERY, pgtasks={"task": FORGERY, "a\nb": 1}))
    assert line.count("\n") == 0
    assert "\x1b" not in line
    assert 'task="x\\x0a2026' in line


def fail() -> None:
    """Raise an error whose message tries to forge a line."""
    raise ValueError(FORGERY)


def with_traceback() -> logging.LogRecord:
    """Return a record of that error."""
    made = record("handler failed", logging.ERROR)
    try:
        fail()
    except ValueError:
        made.exc_info = sys.exc_info()
    return made


def test_the_lines_of_a_traceback_are_indented() -> None:
    """No event begins with a blank, so they cannot be mistaken for one."""
    first, *others = TextLines().format(with_traceback()).splitlines()
    assert first.endswith("ERROR handler failed")
    assert others
    assert all(line.startswith("  ") for line in others)
    assert not any("\x1b" in line for line in others)


def test_an_events_own_traceback_comes_below_it() -> None:
    """That of a task, which the engine has as text: indented lines, or a field in JSON."""
    told = record("task dead", pgtasks={"task_id": 7, "traceback": f"Traceback:\n  {FORGERY}"})
    first, *others = TextLines().format(told).splitlines()
    assert first.endswith("task dead task_id=7")
    assert len(others) == 3
    assert all(line.startswith("  ") for line in others)
    assert json.loads(JsonLines().format(told))["traceback"] == f"Traceback:\n  {FORGERY}"


def test_json_is_one_object_per_line() -> None:
    """With the event's fields beside the common ones, which they cannot replace."""
    line = JsonLines().format(
        record(FORGERY, pgtasks={"task_id": 3_000_000_000, "level": "forged", "big": float("nan")})
    )
    document = json.loads(line)
    assert "\n" not in line
    assert line.isascii()
    assert document["ts"] == "2026-11-30T01:00:00.123Z"
    assert (document["level"], document["level_"], document["logger"]) == ("info", "forged", "pgtasks.worker")
    assert document["event"] == FORGERY
    assert "ValueError" in json.loads(JsonLines().format(with_traceback()))["traceback"]


@pytest.mark.parametrize("value", [object(), {1: 2}, b"x", {"set"}, "\ud800"])
def test_any_value_can_be_logged(value: object) -> None:
    """As text where it has no JSON."""
    json.loads(JsonLines().format(record("e", pgtasks={"v": value})))
    TextLines().format(record("e", pgtasks={"v": value})).encode()


def passed(made: logging.LogRecord, worker: str = "") -> str:
    """Return a record's line after the filter has seen it in a task's handler."""
    task = Claimed(
        id=7, lease_id=1, name="mail", payload="{}", attempt=2, max_attempts=None, timeout_s=None, priority=0,
        run_at=datetime.now(UTC), headers=None,
    )  # fmt: skip
    token = RUNNING.set(task)
    try:
        assert Origin(worker).filter(made)
    finally:
        RUNNING.reset(token)
    return TextLines().format(made)


def test_a_record_gets_the_task_that_runs_unless_it_names_one() -> None:
    """An event of another task keeps its own facts, and gets no attempt that is not its."""
    assert passed(record("hello", name="shop")).endswith("shop: hello task_id=7 task=mail attempt=2")
    assert passed(record("hello", name="shop", task_id=8)).endswith("shop: hello task_id=8")
    assert passed(record("task dead", pgtasks={"task_id": 8, "task": "x"})).endswith("task dead task_id=8 task=x")
    assert passed(record("late", pgtasks={"count": 1})).endswith("late task_id=7 task=mail attempt=2 count=1")
    outside = record("hello")
    assert Origin().filter(outside)
    assert TextLines().format(outside).endswith("INFO  hello")


def test_a_record_gets_its_worker_where_there_are_several() -> None:
    """Unless it is about one."""
    assert passed(record("hello", task_id=8), "w1").endswith("hello task_id=8 worker=w1")
    assert passed(record("leases given back", task_id=8, worker="w2"), "w1").endswith("back task_id=8 worker=w2")
