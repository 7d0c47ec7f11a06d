"""The app that tests enqueue through, and what they look at."""

from collections.abc import Iterator

import pytest

from pgtasks import App
from tests.database import Connection, value


@pytest.fixture
def app(dsn: str) -> Iterator[App]:
    """An app on the test's database, whose connections are closed in the end."""
    made = App(dsn)
    yield made
    made.close()


class Live:
    """The live tasks, as another session sees them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def count(self) -> int:
        """How many there are."""
        return int(value(self._connection, "SELECT count(*) FROM pgtasks.tasks"))

    def only(self, columns: str) -> object:
        """Some columns of the only one, as a JSON value."""
        return value(self._connection, f"SELECT to_jsonb(x) FROM (SELECT {columns} FROM pgtasks.tasks) x")


@pytest.fixture
def live(connection: Connection) -> Live:
    """The live tasks of the test's database."""
    return Live(connection)
