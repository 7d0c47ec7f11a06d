"""What travels between a worker and its children arrives as it was sent."""

from datetime import UTC, datetime
from typing import Any

import pytest

from pgtasks.cli import child
from pgtasks.engine.crossing import outcome_in, outcome_out, reason_in, reason_out, task_in, task_out
from pgtasks.engine.frames import Unpacker, pack
from pgtasks.errors import LeaseLost, TaskTimeout
from pgtasks.model import Claimed
from pgtasks.outcome import (
    Cancelled,
    CancelRequested,
    Completed,
    Dead,
    Failure,
    Lost,
    Outcome,
    Released,
    RetryIn,
    Snoozed,
    StopRequested,
)
from pgtasks.settings import WorkerSettings

FAILURE = Failure("ValueError", "ä😀\n", "Traceback", "timed_out")
OUTCOMES: list[Outcome] = [
    Completed(),
    Completed('{"a": "😀"}', "a note"),
    RetryIn(1.5, FAILURE),
    Dead("worker_lost", FAILURE),
    Snoozed(3.25),
    Cancelled("why"),
    Released(),
    Lost(),
]


def test_messages_may_arrive_in_any_pieces() -> None:
    """Byte by byte, and several at once."""
    messages: list[dict[str, Any]] = [{"a": 1}, {"text": "😀" * 1000}, {"b": [None, {"c": "\x00"}]}]
    data = b"".join(pack(message) for message in messages)
    unpacker = Unpacker()
    assert [found for byte in data for found in unpacker.feed(bytes([byte]))] == messages
    assert Unpacker().feed(data) == messages


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x01{", b"\x00\x00\x00\x02[]"])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    """Too long, no JSON, no object."""
    with pytest.raises((ValueError, TypeError)):
        Unpacker().feed(data)


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_an_outcome_arrives_as_it_was_sent(outcome: Outcome) -> None:
    """Every kind of it."""
    (message,) = Unpacker().feed(pack({"outcome": outcome_out(outcome)}))
    assert outcome_in(message["outcome"]) == outcome


def test_a_task_arrives_as_it_was_claimed() -> None:
    """To the microsecond, whatever else a claim brings."""
    run_at = datetime(2026, 11, 29, 22, 0, 0, 5, UTC)
    task = Claimed(3_000_000_000, 4_000_000_000, "t", '{"a":1}', 2, None, 1.5, -3, run_at, '{"h":1}', losses=2)
    (message,) = Unpacker().feed(pack({"task": task_out(task)}))
    assert task_in(message["task"]) == task


@pytest.mark.parametrize("reason", [TaskTimeout("slow"), CancelRequested(), LeaseLost("gone"), StopRequested()])
def test_a_reason_to_stop_arrives_as_it_was_sent(reason: BaseException) -> None:
    """With its text."""
    (message,) = Unpacker().feed(pack(reason_out(reason)))
    found = reason_in(message)
    assert (type(found), str(found)) == (type(reason), str(reason))


def test_a_child_gets_its_workers_settings() -> None:
    """Those that concern it."""
    argv = child.command("shop:app", WorkerSettings(log_format="json", log_level="debug", child_memory_mib=512))
    assert " ".join(argv[1:]) == ("-m pgtasks.cli.child shop:app --log-format json --log-level debug --memory-mib 512")
