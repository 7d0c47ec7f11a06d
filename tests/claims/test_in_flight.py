"""What others are claiming is left out by a claim that follows, without trying to lock it."""

from collections.abc import Callable
from uuid import UUID

import psycopg
import pytest

from pgtasks.errors import DatabaseError
from pgtasks.store import statements
from pgtasks.store.statements import Lane
from tests.claims.following import LIMIT, NOBODY, add, claim, tried
from tests.claims.helpers import BEGINNING, rescan
from tests.database import Connection, rows
from tests.leases import steps


def test_rows_that_others_are_claiming_are_left_out_before_they_are_locked(dsn: str, connection: Connection) -> None:
    """An ordinary claim tries each of them. Which others these are does not matter, as with SKIP LOCKED."""
    me, third = (steps.known_worker(connection, "t") for _ in range(2))
    add(connection)
    statement = statements.claim("default", [BEGINNING], limit=LIMIT, names=["t"], worker_id=me, lease_s=30)
    with psycopg.connect(dsn) as claiming:
        taken = claim(claiming, third)
        assert tried(connection, statement) == 2 * LIMIT
        assert tried(connection, statements.follow(statement, NOBODY)) == LIMIT
        found = claim(connection, me, after_lease=NOBODY)
    assert [task.id for task in found] == [taken[-1].id + n for n in range(1, LIMIT + 1)]


def test_rows_that_were_claimed_since_the_statement_began_are_left_out(dsn: str, connection: Connection) -> None:
    """Of a claim that was overtaken: here its snapshot is from before theirs. Where it locks, it fails for that."""
    me, third = (steps.known_worker(connection, "t") for _ in range(2))
    add(connection)
    with psycopg.connect(dsn) as slow:
        slow.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        slow.execute("SELECT")
        taken = claim(connection, third)
        found = claim(slow, me, after_lease=NOBODY)
        assert [task.id for task in found] == [taken[-1].id + n for n in range(1, LIMIT + 1)]
        slow.rollback()
        slow.execute("SELECT")
        claim(connection, third, lanes=[Lane(0, taken[-1].run_at, taken[-1].id)])
        with pytest.raises(DatabaseError, match="could not serialize"):
            claim(slow, me)


def _rolled_back(dsn: str) -> None:
    with psycopg.connect(dsn) as claiming:
        claim(claiming, UUID(int=7))
        claiming.rollback()


def _referred_to(dsn: str) -> None:
    """By a row of somebody's own table, as a foreign key locks."""
    with psycopg.connect(dsn) as referring:
        referring.execute("SELECT id FROM pgtasks.tasks FOR KEY SHARE")


def _referred_to_by_two(dsn: str) -> None:
    """What marks the rows then is the number of a multixact, and no transaction's."""
    with psycopg.connect(dsn) as referring:
        referring.execute("SELECT id FROM pgtasks.tasks FOR KEY SHARE")
        _referred_to(dsn)


@pytest.mark.parametrize("marked", [_rolled_back, _referred_to, _referred_to_by_two])
def test_rows_that_ended_transactions_have_marked_are_claimed(
    dsn: str, connection: Connection, marked: Callable[[str], None]
) -> None:
    """The mark stays after them; it is in nobody's way."""
    me = steps.known_worker(connection, "t")
    add(connection)
    marked(dsn)
    ((first, marks),) = rows(connection, "SELECT min(id), count(*) FILTER (WHERE xmax <> '0'::xid) FROM pgtasks.tasks")
    assert marks >= LIMIT
    found = claim(connection, me, after_lease=NOBODY)
    assert [task.id for task in found] == [first + n for n in range(LIMIT)]


def test_rows_that_somebody_refers_to_in_an_open_transaction_are_found_from_the_head(
    dsn: str, connection: Connection
) -> None:
    """The price: such a lock is in no claim's way, and a claim that leaves out what is in flight cannot tell it."""
    me = steps.known_worker(connection, "t")
    add(connection, LIMIT)
    with psycopg.connect(dsn) as referring:
        referring.execute("SELECT pg_current_xact_id()")
        referring.execute("SELECT id FROM pgtasks.tasks FOR KEY SHARE")
        assert claim(connection, me, after_lease=NOBODY) == []
        assert len(rescan(connection, LIMIT)) == LIMIT
