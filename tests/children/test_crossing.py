"""What travels between a worker and its children arrives as it was sent."""

from datetime import UTC, datetime
from typing import Any

import pytest

from pgtasks.cli import child
from pgtasks.engine.attempt import describe
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
from pgtasks.payload import RESULT_BYTES_MAX, dumps
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


def failing(**changed: Any) -> dict[str, Any]:
    """Give a failure as it is sent, but for this."""
    return {
        "kind": "Dead",
        "reason": "exhausted",
        "failure": {**outcome_out(Dead("exhausted", FAILURE))["failure"], **changed},
    }


LIES: list[Any] = [
    None,
    "Completed",
    [],
    {},
    {"kind": None},
    {"kind": ["Completed"]},
    {"kind": "Failure", "error_class": "E", "message": "", "traceback": "", "outcome": "failed"},
    {"kind": "Completed"},
    {"kind": "Completed", "result": None, "note": None, "more": 1},
    {"kind": "Completed", "result": 5, "note": None},
    {"kind": "Completed", "result": "1", "note": ["a"]},
    {"kind": "Completed", "result": "\x00", "note": None},
    {"kind": "Completed", "result": None, "note": "\ud800"},
    {"kind": "Completed", "result": "1" * 13_000_000, "note": None},
    {"kind": "Snoozed", "delay_s": True},
    {"kind": "Snoozed", "delay_s": "1"},
    {"kind": "Snoozed", "delay_s": -1},
    {"kind": "Snoozed", "delay_s": float("nan")},
    {"kind": "Snoozed", "delay_s": float("inf")},
    {"kind": "RetryIn", "delay_s": 1, "failure": None},
    {"kind": "Cancelled", "reason": None},
    {"kind": "Cancelled", "reason": "x" * 100_000},
    {"kind": "Released", "delay_s": 1},
    {**failing(), "reason": "bored"},
    failing(outcome=[]),
    failing(outcome="completed"),
    failing(message=1.5),
    failing(traceback=None),
    failing(error_class="x" * 10_000),
    failing(more=1),
]


@pytest.mark.parametrize("lie", LIES, ids=range(len(LIES)))
def test_an_outcome_that_is_none_is_refused(lie: Any) -> None:
    """Whatever a handler made a child say: the worker writes outcomes and nothing else."""
    with pytest.raises(ValueError, match=" "):
        outcome_in(lie)


@pytest.mark.parametrize("text", ["😀" * 3_000, "\0" * 20_000, "\ud800" * 20_000])
def test_the_longest_texts_of_an_error_are_none_too_long(text: str) -> None:
    """Made fit for the database, escapes and all."""
    outcome = Dead("exhausted", describe(ValueError(text)))
    assert outcome_in(outcome_out(outcome)) == outcome


def test_the_longest_result_is_none_too_long() -> None:
    """Two MiB for the database may be three times as many characters for the socket."""
    outcome = Completed(dumps("😀" * 524_287, root="result", bytes_max=RESULT_BYTES_MAX))
    assert outcome_in(outcome_out(outcome)) == outcome


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


def test_a_child_gets_its_workers_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that concern it."""
    monkeypatch.setattr("sys.orig_argv", ["python", "-m", "pgtasks"])
    argv = child.command("shop:app", WorkerSettings(log_format="json", log_level="debug", child_memory_mib=512))
    assert " ".join(argv[1:]) == ("-m pgtasks.cli.child shop:app --log-format json --log-level debug --memory-mib 512")


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        ("/usr/bin/pgtasks worker -O", ""),
        ("-m pgtasks -O", ""),
        ("-Om pgtasks -I", "-O"),
        ("-I -X dev -Werror /usr/bin/pgtasks", "-I -X dev -W error"),
        ("-OOsX utf8=1 -iu -W default::E:m -c code", "-O -O -s -X utf8=1 -u -W default::E:m"),
        ("--check-hash-based-pycs always -B - -O", "--check-hash-based-pycs always -B"),
        ("", ""),
    ],
)
def test_a_child_gets_its_workers_interpreter(words: str, flags: str) -> None:
    """The options of Python itself, as they were given, and nothing of the program's."""
    assert child.interpreter_flags(words.split()) == flags.split()
