"""The listening session: what it hears between and during statements, and how it ends."""

import asyncio

import psycopg
import pytest

from pgtasks.errors import DatabaseUnavailable
from pgtasks.store import listening, ringing, statements
from pgtasks.store.listening import Listening
from pgtasks.store.session import Statement
from tests.claims.helpers import until
from tests.database import Connection, rows

BACKENDS = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'pgtasks/listen/%'"


class _Ear:
    """A session and all that it reported."""

    def __init__(self, dsn: str) -> None:
        self.heard: list[str] = []
        self.lost = 0
        self.session = Listening(
            dsn, ("pgtasks",), lambda _, payload: self.heard.append(payload), self._lose, worker="w"
        )

    def _lose(self) -> None:
        self.lost += 1


async def test_it_hears_while_idle_and_while_a_statement_runs(dsn: str, connection: Connection) -> None:
    """Nothing that comes with an answer, or right behind it, is left lying."""
    ear = _Ear(dsn)
    await ear.session.open()
    for number in range(200):
        connection.execute("SELECT pg_notify('pgtasks', %s)", (str(number),))
        if number % 3:
            await ear.session.fetch_all(ringing.arm_bells(["q"]))
    await until(lambda: len(ear.heard) == 200)
    assert ear.heard == [str(number) for number in range(200)]
    await ear.session.close()
    assert ear.lost == 0


async def test_many_sessions_come_and_go_in_one_loop(dsn: str, connection: Connection) -> None:
    """A session that was ended by the server leaves nothing in the loop that stands in the way of the next."""
    ear = _Ear(dsn)
    for turn in range(1, 6):
        await ear.session.open()
        connection.execute(f"SELECT pg_terminate_backend(pid, 5000) FROM ({BACKENDS}) b".encode())
        await until(lambda: not ear.session.connected)
        assert ear.lost == turn
        with pytest.raises(DatabaseUnavailable):
            await ear.session.fetch_all(statements.clock())
    await ear.session.close()
    assert ear.lost == 5


async def test_a_statement_without_an_answer_ends_the_session(
    dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past the deadline; its locks cannot be known any more, so the backend must not live on with them."""
    ear = _Ear(dsn)
    await ear.session.open()
    monkeypatch.setattr(listening, "DEADLINE_S", 0.1)
    with pytest.raises(DatabaseUnavailable, match="no answer"):
        await ear.session.fetch_all(Statement("SELECT pg_sleep(10)"))
    assert ear.lost == 1
    assert not ear.session.connected
    connection.execute("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(10)'")
    await until(lambda: rows(connection, BACKENDS) == [])


async def test_a_failed_start_leaves_no_connection(
    dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connected but unable to listen: closed, and the next try is a new one."""
    ear = _Ear(dsn)

    async def fail(_: object, __: object) -> None:
        raise psycopg.OperationalError("as asked")

    with monkeypatch.context() as patch:
        patch.setattr(Listening, "_listen", fail)
        with pytest.raises(psycopg.OperationalError):
            await ear.session.open()
    await until(lambda: rows(connection, BACKENDS) == [])
    await ear.session.open()
    assert ear.session.connected
    await ear.session.close()


async def test_statements_of_several_parts_take_turns(dsn: str) -> None:
    """One after the other on the one session."""
    ear = _Ear(dsn)
    await ear.session.open()
    answers = await asyncio.gather(*(ear.session.fetch_all(ringing.arm_bells([f"q{n}"])) for n in range(10)))
    assert [bell.queue for (bell,) in answers] == [f"q{n}" for n in range(10)]
    await ear.session.close()
