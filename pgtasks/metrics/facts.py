"""Facts about the database, kept for a while, and read in a thread of their own.

Nothing is read while nobody asks. A page that finds the facts older than KEPT_S has them read
anew and waits a moment for it; if that takes longer, or fails, it shows what there was, and how
old it is. So pages cost the database one reading per KEPT_S at most, and are always quick. The
connection is closed after a while without questions.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol, Self

from pgtasks import events, schema
from pgtasks.errors import PgtasksError, SchemaError
from pgtasks.store.facts import Facts, read_facts
from pgtasks.store.session import SyncConnection, connect

KEPT_S = 15.0
# How long a page waits for facts that are being read.
WAIT_S = 1.0
IDLE_S = 120.0
CLOSE_S = 0.5
_SCHEMA = "schema"


class Known(NamedTuple):
    """What is known: the facts, None before there were any, and how trustworthy that is."""

    facts: Facts | None
    age_s: float
    errors: int
    # What is wrong with the schema, or that the database cannot be read; None when all is well.
    problem: str | None


class Reader(Protocol):
    """Where facts come from."""

    def read(self) -> Facts:
        """Read them; raises PgtasksError."""

    def close(self) -> None:
        """End its connection; the next ``read`` opens another."""


class DatabaseReader:
    """Reads facts over a connection of its own, which lives from one reading to the next."""

    def __init__(self, dsn: str, *, pooler: str, worker: str = "") -> None:
        self._dsn, self._pooler, self._worker = dsn, pooler, worker
        self._connection: SyncConnection | None = None

    def read(self) -> Facts:
        """Read them; raises DatabaseError, or SchemaError when the schema is not the one we know."""
        if self._connection is None:
            self._connection = connect(self._dsn, "metrics", worker=self._worker, pooler=self._pooler)
        try:
            state = schema.read(self._connection)
            # A newer one serves this version as well, until it is replaced (docs/upgrading.md).
            if state.verdict != "too new":
                schema.require(state)
            return read_facts(self._connection)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            with contextlib.suppress(Exception):
                self._connection.close()
            self._connection = None


class FactsKeeper:
    """Keeps the facts; a context manager, in which its thread runs."""

    def __init__(self, reader: Reader, clock: Callable[[], float] = time.monotonic) -> None:
        self._reader, self._clock = reader, clock
        self._facts: Facts | None = None
        self._read_at = self._tried_at = float("-inf")
        self._errors = 0
        self._problem: str | None = None
        self._changed = threading.Condition()
        self._wanted = self._ended = False
        self._thread = threading.Thread(target=self._work, name="pgtasks-facts", daemon=True)

    def __enter__(self) -> Self:
        """Start the thread."""
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        """End it; one that waits for the database is left to its end."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._thread.join(CLOSE_S)

    def schema_problem(self) -> str | None:
        """Give what was wrong with the schema at the last reading, and have it looked at again if that is old."""
        self._want()
        problem = self._problem
        return problem if problem is not None and problem.startswith(_SCHEMA) else None

    def known(self) -> Known:
        """Give what is known; facts that are too old are read first if that is quick."""
        with self._changed:
            if self._want():
                self._changed.wait_for(lambda: self._ended or not self._wanted, WAIT_S)
            age_s = self._clock() - self._read_at if self._facts is not None else 0.0
            return Known(self._facts, age_s, self._errors, self._problem)

    def _want(self) -> bool:
        """Have the facts read anew if they are old; tells whether that is so."""
        with self._changed:
            if self._clock() - self._tried_at < KEPT_S:
                return False
            self._wanted = True
            self._changed.notify_all()
            return True

    def _work(self) -> None:
        while self._wait():
            facts, problem = self._read()
            with self._changed:
                self._tried_at = self._clock()
                if facts is not None:
                    self._facts, self._read_at = facts, self._tried_at
                else:
                    self._errors += 1
                self._problem, self._wanted = problem, False
                self._changed.notify_all()
        self._reader.close()

    def _wait(self) -> bool:
        """Wait until facts are wanted; false at the end."""
        with self._changed:
            while not (self._wanted or self._ended):
                if not self._changed.wait_for(lambda: self._wanted or self._ended, IDLE_S):
                    self._reader.close()
            return not self._ended

    def _read(self) -> tuple[Facts | None, str | None]:
        try:
            return self._reader.read(), None
        except Exception as error:  # noqa: BLE001 - whatever it is, pages go on with the facts there are
            about = _SCHEMA if isinstance(error, SchemaError) else "database"
            text = str(error).splitlines()[0] if str(error) else type(error).__name__
            if self._problem is None:
                say = events.warning if isinstance(error, PgtasksError) else events.error
                say("database facts not read", error=text)
            return None, f"{about}: {text}"
