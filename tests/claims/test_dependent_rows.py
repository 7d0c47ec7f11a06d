"""C-02: a row of a user's table that points at a task neither hides it nor is blocked by its claim."""

from collections.abc import Iterator

import psycopg
import pytest

from tests.claims.helpers import claim, rescan
from tests.database import Connection, rows, value


@pytest.fixture
def edges(connection: Connection) -> Iterator[Connection]:
    """A connection of the user, whose table `edges` has a foreign key to tasks."""
    connection.execute("CREATE TABLE public.edges (task_id bigint REFERENCES pgtasks.tasks ON DELETE CASCADE)")
    connection.execute("SET lock_timeout = '500ms'")
    yield connection
    connection.execute("DROP TABLE public.edges")


def _insert(connection: Connection) -> int:
    return int(value(connection, "INSERT INTO pgtasks.tasks (name) VALUES ('t') RETURNING id"))


@pytest.mark.parametrize("take", [claim, rescan])
def test_an_uncommitted_reference_does_not_hide_a_task(dsn: str, edges: Connection, take: object) -> None:
    """The user's transaction is still open when a worker claims the task."""
    task_id = _insert(edges)
    with psycopg.connect(dsn, autocommit=True) as worker, edges.transaction():
        edges.execute("INSERT INTO public.edges VALUES (%s)", (task_id,))
        assert callable(take)
        assert [task.id for task in take(worker, 10)] == [task_id]


def test_a_claim_does_not_block_a_reference(dsn: str, edges: Connection) -> None:
    """The claim's transaction is still open when the user inserts."""
    task_id = _insert(edges)
    with psycopg.connect(dsn) as worker:
        assert claim(worker, 10)
        edges.execute("INSERT INTO public.edges VALUES (%s)", (task_id,))
        assert rows(edges, "SELECT task_id FROM public.edges") == [(task_id,)]
