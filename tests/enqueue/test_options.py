"""Options of an enqueue: kept in the row, or refused with the field's name, nothing inserted."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pgtasks import App, ArgumentsError, ConfigError, Context, EnqueueError, NewTask, PgtasksError
from tests.database import Connection, rows, value
from tests.enqueue.conftest import Live

BAD: list[tuple[dict[str, Any], str]] = [
    ({"delay": -1}, "delay must not be negative, got -1"),
    ({"delay": timedelta(seconds=-1)}, "delay must not be negative"),
    ({"delay": float("nan")}, "delay must be at most"),
    ({"delay": 1e12}, "delay must be at most"),
    ({"delay": "5"}, "delay must be seconds or a timedelta"),
    ({"run_at": datetime(2030, 1, 1)}, "run_at must be a datetime with a time zone"),  # noqa: DTZ001 - the mistake
    ({"run_at": "2030-01-01"}, "run_at must be a datetime with a time zone"),
    ({"run_at": datetime(9999, 1, 1, tzinfo=UTC)}, "run_at must be between"),
    ({"run_at": datetime(1900, 1, 1, tzinfo=UTC)}, "run_at must be between"),
    ({"run_at": datetime(2030, 1, 1, tzinfo=UTC), "delay": 1}, "run_at or delay, not both"),
    ({"queue": ""}, "queue must have 1 to 200 characters, got 0"),
    ({"queue": "q" * 300}, "queue must have 1 to 200 characters, got 300"),
    ({"queue": "a\nb"}, r"queue must not hold control characters .*U\+000A"),
    ({"queue": "a\x00"}, "queue must not hold control characters"),
    ({"queue": "a\ud800"}, "queue must not hold control characters or lone surrogates"),
    ({"queue": 5}, "queue must be text"),
    ({"priority": 32768}, "priority must be a whole number between"),
    ({"priority": -32769}, "priority must be a whole number between"),
    ({"priority": True}, "priority must be a whole number between"),
    ({"priority": 1.0}, "priority must be a whole number between"),
    ({"max_attempts": 0}, "max_attempts must be a whole number"),
    ({"max_attempts": 2**31}, "max_attempts must be a whole number"),
    ({"timeout": 0}, "timeout must be above 0"),
    ({"timeout": -1}, "timeout must not be negative"),
    ({"timeout": timedelta(days=400)}, "timeout must be at most"),
    ({"unique_key": ""}, "unique_key must be text of 1 to 500"),
    ({"unique_key": "k" * 501}, "unique_key must be text of 1 to 500"),
    ({"unique_key": "\x00"}, "unique_key must not hold NUL"),
    ({"unique_key": 5}, "unique_key must be text"),
    ({"headers": {"a": {1}}}, "headers.a is a set"),
    ({"on_conflict": "overwrite"}, "on_conflict must be ignore, raise or replace"),
    ({"prioritiy": 1}, "unknown option 'prioritiy'"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_a_bad_option_is_named_and_nothing_is_inserted(
    app: App, live: Live, options: dict[str, Any], message: str
) -> None:
    """Through a task and by name alike."""

    @app.task
    def work() -> None:
        raise NotImplementedError

    with pytest.raises(EnqueueError, match=message):
        work.using(**options).enqueue()
    with pytest.raises(EnqueueError, match=message):
        app.enqueue("work", **options)
    assert live.count() == 0


@pytest.mark.parametrize("name", ["", "n" * 300, "a\tb", "a\x7f", "\ud800", None, 5])
def test_a_bad_name_is_refused(app: App, live: Live, name: Any) -> None:
    """By name, and when a handler is registered under it."""
    with pytest.raises(EnqueueError, match="name must"):
        app.enqueue(name)
    if name is not None:
        with pytest.raises(ConfigError, match="name must"):
            app.task(name=name)(print)
    assert live.count() == 0


def test_options_arrive_in_the_row(app: App, connection: Connection) -> None:
    """Every one of them."""
    due = datetime(2031, 2, 3, 4, 5, 6, tzinfo=UTC)

    @app.task(queue="mail", priority=-3)
    def work() -> None:
        raise NotImplementedError

    work.using(
        queue="urgent",
        priority=7,
        run_at=due,
        unique_key="k",
        max_attempts=4,
        timeout=timedelta(minutes=2),
        headers={"trace": "1"},
    ).enqueue()
    work.enqueue()
    columns = "queue, priority, run_at, unique_key, max_attempts, timeout, headers"
    first, second = rows(connection, f"SELECT {columns} FROM pgtasks.tasks ORDER BY id")
    assert first == ("urgent", 7, due, "k", 4, timedelta(minutes=2), {"trace": "1"})
    assert (second[0], second[1], second[3:]) == ("mail", -3, (None, None, None, None))


def test_a_delay_counts_from_the_databases_clock(app: App, connection: Connection) -> None:
    """Single and in bulk."""

    @app.task
    def work() -> None:
        raise NotImplementedError

    late = work.using(delay=timedelta(hours=1))
    late.enqueue()
    app.enqueue_many([late.prepare(), late.using(unique_key="k").prepare()])
    waits = rows(connection, "SELECT extract(epoch FROM run_at - clock_timestamp())::float FROM pgtasks.tasks")
    assert len(waits) == 3
    assert all(3590 < wait <= 3600 for (wait,) in waits)


def test_arguments_that_do_not_fit_are_named(app: App, live: Live) -> None:
    """The error is also a TypeError, as for a plain call; the function's name and signature are in it."""

    @app.task
    def add(context: Context, a: int, *, b: int = 0) -> int:
        raise NotImplementedError

    # Called the way that a type checker would refuse.
    enqueue: Any = add.enqueue
    for args, kwargs, message in [
        ((), {}, r"add\(a: 'int', \*, b: 'int' = 0\) .*: missing a required argument: 'a'|missing .*'a'"),
        ((1, 2), {}, "too many positional"),
        ((1,), {"c": 3}, "unexpected keyword argument 'c'"),
        ((1,), {"context": 3}, "unexpected keyword argument 'context'"),
    ]:
        with pytest.raises(ArgumentsError, match=message):
            enqueue(*args, **kwargs)
    with pytest.raises(ArgumentsError, match=r"tasks\[1\]: add.*missing"):
        app.enqueue_many(add.prepare(*args) for args in [(1,), ()])
    assert issubclass(ArgumentsError, TypeError)
    assert issubclass(ArgumentsError, PgtasksError)
    assert live.count() == 0


def test_a_name_alone_gets_its_types_queue_and_priority(app: App, connection: Connection) -> None:
    """Single and in bulk, what workers told the database fills what is not given."""
    connection.execute(
        "INSERT INTO pgtasks.task_types (name, queue, priority, max_attempts, retry) VALUES ('far', 'mail', 9, 3, '{}')"
    )
    app.enqueue("far")
    app.enqueue_many([NewTask("far"), NewTask("far", queue="own"), NewTask("near")])
    found = rows(connection, "SELECT name, queue, priority FROM pgtasks.tasks ORDER BY id")
    assert found == [("far", "mail", 9), ("far", "mail", 9), ("far", "own", 9), ("near", "default", 0)]


def test_a_missing_schema_is_said(empty_dsn: str) -> None:
    """With the command to run."""
    app = App(empty_dsn)
    with pytest.raises(PgtasksError, match="pgtasks migrate"):
        app.enqueue("work")
    with pytest.raises(PgtasksError, match="pgtasks migrate"):
        app.enqueue_many([NewTask("work")])
    app.close()


def test_no_database_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a DSN, and with one that leads nowhere."""
    monkeypatch.delenv("PGTASKS_DSN", raising=False)
    with pytest.raises(ConfigError, match="PGTASKS_DSN"):
        App().enqueue("work")
    with pytest.raises(ConfigError, match="cannot be read"):
        App("postgresql://u:secret@h:port/x y=").enqueue("work")


def test_enqueue_says_what_was_created(app: App, connection: Connection) -> None:
    """The id is the row's."""
    added = app.enqueue("work")
    assert added.created
    assert value(connection, "SELECT id FROM pgtasks.tasks") == added.id
