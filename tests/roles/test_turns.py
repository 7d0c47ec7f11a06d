"""Any number may grant at once, as the pods of a deployment do when they start."""

import threading

import psycopg
import pytest

from tests.cli.conftest import Run, offline
from tests.database import Connection, rows, wait_until

__all__ = ["offline"]
pytestmark = pytest.mark.pg
TURN = "SELECT pg_advisory_xact_lock(hashtextextended('grant', 7074618))"
WAITING = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


def test_who_grants_waits_for_its_turn(dsn: str, connection: Connection, offline: Run) -> None:
    """Else PostgreSQL fails one of two that change the same row of its catalog."""
    rows(connection, "CREATE ROLE taking_turns")
    codes = list[int]()
    with psycopg.connect(dsn) as other:
        rows(other, TURN)
        granting = threading.Thread(
            target=lambda: codes.append(offline("grant", "reader", "taking_turns", "--dsn", dsn).code)
        )
        granting.start()
        wait_until(lambda: rows(connection, WAITING))
        other.rollback()
        granting.join()
    assert codes == [0]
    rows(connection, "DROP OWNED BY taking_turns")
    rows(connection, "DROP ROLE taking_turns")
