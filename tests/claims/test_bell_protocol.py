"""The doorbell's two halves against each other, as statements of plain sessions (N-01, N-02)."""

from collections.abc import Iterator

import psycopg
import pytest

from pgtasks.store import ringing, session
from pgtasks.store.ringing import Bell
from tests.database import Connection, rows, value

KEY = "hashtextextended(%s, 7074617)"
INSERT = "INSERT INTO pgtasks.tasks (name, queue) VALUES ('t', %s)"


def _armed(queue: str) -> Bell:
    return Bell(queue, armed=True, held=False)


def _held(queue: str) -> Bell:
    return Bell(queue, armed=False, held=True)


def _in_flight(queue: str) -> Bell:
    return Bell(queue, armed=False, held=False)


@pytest.fixture
def sleeper(dsn: str) -> Iterator[Connection]:
    """The listening session of a worker."""
    with psycopg.connect(dsn, autocommit=True) as opened:
        yield opened


@pytest.fixture
def producer(dsn: str) -> Iterator[Connection]:
    """A session that inserts, in transactions of its own."""
    with psycopg.connect(dsn) as opened:
        yield opened
        opened.rollback()


@pytest.fixture
def listener(dsn: str) -> Iterator[Connection]:
    """A session that hears every notification."""
    with psycopg.connect(dsn, autocommit=True) as opened:
        opened.execute("LISTEN pgtasks")
        yield opened


def _arm(connection: Connection, *queues: str) -> list[Bell]:
    return session.fetch_all(connection, ringing.arm_bells(queues))


def _locks(connection: Connection) -> list[tuple[str]]:
    """Give the modes of the advisory locks that a session holds."""
    return rows(connection, "SELECT mode FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()")


def _heard(listener: Connection) -> list[str]:
    """Give all that was notified until now, up to a notification of our own."""
    listener.execute("NOTIFY pgtasks, 'enough'")
    heard: list[str] = []
    for note in listener.notifies(timeout=5.0):
        if note.payload == "enough":
            return heard
        heard.append(note.payload)
    raise AssertionError("the session does not hear itself")


def test_nobody_asleep_means_no_notification(producer: Connection, listener: Connection) -> None:
    """However the tasks come in."""
    for statement in (INSERT, "SELECT pgtasks.enqueue('t', queue => %s)"):
        producer.execute(statement.encode(), ("q",))
        producer.commit()
    with producer.cursor().copy("COPY pgtasks.tasks (name) FROM STDIN") as copy:
        copy.write("t\n" * 100)
    producer.commit()
    assert _heard(listener) == []


def test_somebody_asleep_is_rung_once_per_statement_and_queue(
    sleeper: Connection, producer: Connection, listener: Connection
) -> None:
    """Rows of one statement ring together; statements of one transaction collapse; other queues do not ring."""
    assert _arm(sleeper, "a", "b") == [_armed("a"), _armed("b")]
    producer.execute(
        "INSERT INTO pgtasks.tasks (name, queue) SELECT 't', (ARRAY['a', 'b', 'c'])[1 + n %% 3]"
        " FROM generate_series(1, 10000) n",
        (),
    )
    producer.execute(INSERT, ("a",))
    producer.commit()
    assert sorted(_heard(listener)) == ["a", "b"]
    with producer.cursor().copy("COPY pgtasks.tasks (name, queue) FROM STDIN") as copy:
        copy.write("t\ta\n" * 1000)
    producer.commit()
    assert _heard(listener) == ["a"]


def test_a_statement_over_many_queues_takes_a_hundred_locks_and_rings_for_the_rest(
    producer: Connection, listener: Connection
) -> None:
    """The server's lock table is shared by all; a bulk over thousands of queues must not fill it."""
    producer.execute("INSERT INTO pgtasks.tasks (name, queue) SELECT 't', 'q' || n FROM generate_series(1, 3000) AS n")
    assert len(_locks(producer)) == 100
    producer.commit()
    assert len(set(_heard(listener))) == 2900


def test_a_ring_is_heard_at_commit_and_not_at_all_after_a_rollback(
    sleeper: Connection, producer: Connection, listener: Connection
) -> None:
    """A notification never comes before its rows are visible, nor without them."""
    _arm(sleeper, "q")
    producer.execute(INSERT, ("q",))
    assert _heard(listener) == []
    producer.rollback()
    assert _heard(listener) == []
    producer.execute(INSERT, ("q",))
    producer.commit()
    assert _heard(listener) == ["q"]


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_nobody_falls_asleep_while_a_producer_is_in_flight(sleeper: Connection, producer: Connection, end: str) -> None:
    """Neither armed nor held, and no other bell is taken; once it ended: armed, its rows there to be seen."""
    producer.execute(INSERT, ("q",))
    assert _arm(sleeper, "q", "other") == [_in_flight("q"), _in_flight("other")]
    assert _locks(sleeper) == []
    getattr(producer, end)()
    assert _arm(sleeper, "q") == [_armed("q")]
    assert value(sleeper, "SELECT count(*) FROM pgtasks.tasks") == (1 if end == "commit" else 0)


def test_a_savepoint_takes_its_lock_along(sleeper: Connection, producer: Connection) -> None:
    """Rolled back, nothing is in flight although the transaction is open; released, it is."""
    producer.execute("SELECT 1")
    with producer.transaction(force_rollback=True):
        producer.execute(INSERT, ("q",))
    assert _arm(sleeper, "q") == [_armed("q")]
    session.fetch_all(sleeper, ringing.release_bells([]))
    with producer.transaction():
        producer.execute(INSERT, ("q",))
    assert _arm(sleeper, "q") == [_in_flight("q")]


def test_a_ring_in_a_savepoint_that_is_rolled_back_is_taken_back(
    sleeper: Connection, producer: Connection, listener: Connection
) -> None:
    """Its rows are gone as well; what the transaction inserts outside of it rings."""
    _arm(sleeper, "a", "b")
    producer.execute(INSERT, ("a",))
    with producer.transaction(force_rollback=True):
        producer.execute(INSERT, ("b",))
    producer.commit()
    assert _heard(listener) == ["a"]


def test_a_second_sleeper_relies_on_the_first(dsn: str, sleeper: Connection) -> None:
    """It takes no lock of its own, not even a shared one, until the first is gone."""
    with psycopg.connect(dsn, autocommit=True) as second:
        _arm(sleeper, "q")
        assert _arm(second, "q") == [_held("q")]
        assert _locks(second) == []
        sleeper.close()
        assert _until_armed(second)


def _until_armed(connection: Connection) -> bool:
    return any(bell.armed for _ in range(1000) for bell in _arm(connection, "q"))


def test_who_wakes_unrung_rings_for_those_who_relied_on_it(sleeper: Connection, listener: Connection) -> None:
    """In the statement that gives the bells back; only the queues it names."""
    _arm(sleeper, "a", "b")
    session.fetch_all(sleeper, ringing.release_bells(["b"]))
    assert _heard(listener) == ["b"]
    assert _locks(sleeper) == []


def test_nobody_waits_for_the_disk_because_a_worker_woke_up(sleeper: Connection) -> None:
    """Its notification does not: the commit would hold the lock of all notifying transactions."""
    sleeper.execute("SET synchronous_commit = on")
    _arm(sleeper, "a")
    ((setting, *_),) = session.fetch_all(sleeper, ringing.release_bells(["a"]))
    assert setting == "off"
    assert value(sleeper, "SHOW synchronous_commit") == "on"


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("", _held("q")), ("_shared", _in_flight("q"))],
    ids=["exclusive", "shared"],
)
def test_a_stranger_with_the_key_never_costs_a_task(
    dsn: str, sleeper: Connection, producer: Connection, listener: Connection, mode: str, expected: Bell
) -> None:
    """Exclusive: the worker sleeps and producers ring. Shared: the worker stays awake."""
    with psycopg.connect(dsn, autocommit=True) as stranger:
        stranger.execute(f"SELECT pg_advisory_lock{mode}({KEY})".encode(), ("q",))
        assert _arm(sleeper, "q") == [expected]
        producer.execute(INSERT, ("q",))
        producer.commit()
        assert _heard(listener) == (["q"] if expected.held else [])


def test_long_names_and_large_payloads_ring(sleeper: Connection, producer: Connection, listener: Connection) -> None:
    """N-01: a queue of 200 four-byte characters, a payload of 1 MB: only the name is in the notification."""
    queue = "\N{SNOWMAN}\N{GRINNING FACE}" * 100
    _arm(sleeper, queue)
    producer.execute(
        "INSERT INTO pgtasks.tasks (name, queue, payload)"
        " VALUES ('t', %s, jsonb_build_object('text', repeat('x', 1000000)))",
        (queue,),
    )
    producer.commit()
    assert _heard(listener) == [queue]


def test_what_becomes_due_without_an_insert_rings_too(
    sleeper: Connection, producer: Connection, listener: Connection
) -> None:
    """A task made due by hand, a queue resumed, a task replaced."""
    task_id = value(sleeper, "SELECT pgtasks.enqueue('t', queue => 'q', delay => '1 h', unique_key => 'k')")
    sleeper.execute("SELECT pgtasks.pause('q')")
    _arm(sleeper, "q")
    for statement, params in (
        ("SELECT pgtasks.retry(%s)", (task_id,)),
        ("SELECT pgtasks.resume(%s)", ("q",)),
        ("SELECT pgtasks.enqueue_task('t', queue => %s, unique_key => 'k', on_conflict => 'replace')", ("q",)),
    ):
        producer.execute(statement.encode(), params)
        producer.commit()
        assert _heard(listener) == ["q"]
