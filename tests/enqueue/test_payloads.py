"""P-01: what JSONB refuses is refused before anything is sent, naming the path."""

import math
from typing import Any

import pytest

from pgtasks import App, EnqueueError, NewTask, PayloadError
from pgtasks.payload import PAYLOAD_BYTES_MAX, dumps, loads
from tests.database import Connection, value
from tests.enqueue.conftest import Live

ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


def nested(levels: int) -> Any:
    """Return lists in lists."""
    found: Any = 1
    for _ in range(levels):
        found = [found]
    return found


BAD: dict[str, tuple[Any, str]] = {
    "NUL": ({"a": ["x", "a\x00b"]}, "payload.x.a[1]"),
    "NUL in a key": ({"b\x00": 1}, "payload.x"),
    "NaN": ([1, math.nan], "payload.x[1]"),
    "infinity": ({"a": {"b": math.inf}}, "payload.x.a.b"),
    "minus infinity": (-math.inf, "payload.x"),
    "lone surrogate": ("\udce9", "payload.x"),
    "surrogate in a key": ({"k": {"\ud800": 1}}, "payload.x.k"),
    "5,000 digits": ([10**5000], "payload.x[0]"),
    "set": ({"a": {1, 2}}, "payload.x.a"),
    "bytes": ([[b"x"]], "payload.x[0][0]"),
    "object": (object(), "payload.x"),
    "number as key": ({"a": {1: "one"}}, "payload.x.a"),
    "tuple as key": ({(1, 2): 3}, "payload.x"),
    "mapping that is no dict": (type.__dict__, "payload.x"),
    "too large": ("x" * PAYLOAD_BYTES_MAX, "payload"),
}


@pytest.mark.parametrize(("bad", "path"), BAD.values(), ids=BAD.keys())
def test_a_value_that_jsonb_refuses_is_named_by_its_path(app: App, live: Live, bad: Any, path: str) -> None:
    """P-01: one error class, the path in it and in the message, nothing inserted."""

    @app.task
    def take(x: Any) -> None:
        raise NotImplementedError

    with pytest.raises(PayloadError) as caught:
        take.enqueue(bad)
    assert caught.value.path == path
    assert str(caught.value).startswith(path)
    assert live.count() == 0


@pytest.mark.parametrize("bad", [nested(5000), nested(201), ENDLESS], ids=["5000", "201", "endless"])
def test_a_deeply_nested_value_is_refused(app: App, live: Live, bad: Any) -> None:
    """P-01: also one that contains itself."""
    with pytest.raises(PayloadError, match="nested more than 200 levels deep, or contains itself"):
        app.enqueue("take", {"x": bad})
    assert live.count() == 0


@pytest.mark.parametrize(
    "good",
    [
        {},
        {"x": None},
        {"x": "😀 \u2028\u2029 ü \\u0000 \x1b \x7f"},
        {"x": "y" * 1_000_000},
        {"x": "ü" * 500_000},
        {"x": [True, False, 0, -1, 2**63, 1.5, 2.5e-7, "", [], {}]},
        {"": {"😀": [[]]}},
        {"x": nested(199)},
        {"x": 10**4000},
    ],
    ids=lambda payload: dumps(payload)[:40],
)
def test_a_good_value_comes_back_as_it_was(app: App, connection: Connection, good: dict[str, Any]) -> None:
    """P-01: emoji, line separators, a megabyte of text, an empty object."""
    added = app.enqueue("take", good)
    text = value(connection, "SELECT payload::text FROM pgtasks.tasks WHERE id = %s", added.id)
    assert loads(text) == good


def test_a_bulk_with_one_bad_task_adds_none_and_names_it(app: App, live: Live) -> None:
    """P-01: all or nothing, the index in the message, over more than one chunk."""

    @app.task
    def take(x: Any) -> None:
        raise NotImplementedError

    with pytest.raises(PayloadError, match=r"^tasks\[7001\]: payload\.x\[0\] is a set") as caught:
        app.enqueue_many(take.prepare([{1}] if number == 7001 else number) for number in range(9000))
    assert caught.value.path == "payload.x[0]"
    assert live.count() == 0


@pytest.mark.parametrize("key", [None, "k"], ids=["streamed", "with a key"])
def test_a_task_that_only_the_database_refuses_is_named_too(app: App, live: Live, key: str | None) -> None:
    """P-01: a CHECK's refusal in the middle of a bulk gives the index, not the row's content."""
    good = [NewTask("take", "{}", "q", 0, unique_key=None if number % 2 else f"k{number}") for number in range(6000)]
    bad = NewTask("take", '{"secret": 1}', "line\nbreak", 0, unique_key=key)
    with pytest.raises(EnqueueError, match=r"queue.has.no.control.characters.*tasks\[5500\]|tasks\[5500\]") as caught:
        app.enqueue_many([*good[:5500], bad, *good[5500:]])
    assert "secret" not in str(caught.value)
    assert live.count() == 0


def test_an_application_error_in_the_source_is_passed_on(app: App, live: Live) -> None:
    """Only our own errors get an index; what is no task at all does too."""
    with pytest.raises(EnqueueError, match=r"tasks\[1\]: expected what task\.prepare"):
        app.enqueue_many([NewTask("take"), "take"])  # type: ignore[list-item]  # the mistake to be found
    assert live.count() == 0


def test_a_payload_by_name_is_an_object(app: App, live: Live) -> None:
    """Handlers take named arguments."""
    for bad in ([1], "text", 5):
        with pytest.raises(PayloadError, match="must be a dict"):
            app.enqueue("take", bad)  # type: ignore[arg-type]  # the mistake to be found
    assert live.count() == 0
