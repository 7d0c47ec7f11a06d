"""The connection of `pgtasks top`, in a thread of its own: no database is so slow that a key has to wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from queue import SimpleQueue
from typing import assert_never

from pgtasks.cli.database import connection_to
from pgtasks.cli.escape import escape
from pgtasks.cli.exits import message_of, without_passwords
from pgtasks.cli.steering import CANCELLED, NOT_FOUND
from pgtasks.cli.top_state import Cancel, Pause, Resume
from pgtasks.errors import DatabaseError, DatabaseUnavailable
from pgtasks.store import listing
from pgtasks.store.session import SyncConnection, fetch_all
from pgtasks.store.watching import Look, read_look


@dataclass(frozen=True, slots=True)
class LookAgain:
    """A wish for a look; ``last`` is the ``until`` of the look before."""

    last: datetime | None


@dataclass(frozen=True, slots=True)
class Said:
    """What became of an action."""

    text: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """The database did not answer; it is asked again with the next wish."""

    text: str


@dataclass(frozen=True, slots=True)
class Broken:
    """What no second try can help."""

    error: Exception


Wish = LookAgain | Pause | Resume | Cancel
Answer = Look | Said | Trouble | Broken


class Reader(threading.Thread):
    """Fulfils wishes one after the other, and calls ``answered`` after each."""

    def __init__(self, dsn: str, answered: Callable[[], None]) -> None:
        super().__init__(name="top-reader", daemon=True)
        self.answers: SimpleQueue[Answer] = SimpleQueue()
        self._wishes: SimpleQueue[Wish | None] = SimpleQueue()
        self._dsn, self._answered = dsn, answered
        self._connection: SyncConnection | None = None

    def ask(self, wish: Wish) -> None:
        """Ask for something; its answer will be in ``answers``."""
        self._wishes.put(wish)

    def stop(self, patience_s: float) -> None:
        """End after the wishes there are, and wait for that so long at most."""
        self._wishes.put(None)
        self.join(patience_s)

    def run(self) -> None:
        """Answer until asked to end."""
        with ExitStack() as opened:
            while (wish := self._wishes.get()) is not None:
                self.answers.put(self._answer(wish, opened))
                self._answered()

    def _answer(self, wish: Wish, opened: ExitStack) -> Answer:
        try:
            if self._connection is None:
                self._connection = opened.enter_context(connection_to(self._dsn))
            return _fulfilled(self._connection, wish)
        except DatabaseUnavailable as error:
            self._connection = None
            opened.close()
            return Trouble(f"trying again: {without_passwords(message_of(error))}")
        except DatabaseError as error:
            # An action that is refused, for want of a privilege for example, is no reason to end.
            said = without_passwords(message_of(error))
            return Broken(error) if isinstance(wish, LookAgain) else Said(said)
        except Exception as error:  # noqa: BLE001 - the main thread raises it again
            return Broken(error)


def _fulfilled(connection: SyncConnection, wish: Wish) -> Answer:
    match wish:
        case LookAgain(last):
            return read_look(connection, last)
        case Pause(queue):
            ((changed,),) = fetch_all(connection, listing.pause(queue))
            return Said(f"queue {escape(queue)} {'is paused' if changed else 'was paused already'}")
        case Resume(queue):
            ((changed,),) = fetch_all(connection, listing.resume(queue))
            return Said(f"queue {escape(queue)} {'goes on' if changed else 'was not paused'}")
        case Cancel(task_id):
            ((happened,),) = fetch_all(connection, listing.cancel(task_id))
            return Said(f"task {task_id}: {CANCELLED[happened or NOT_FOUND]}")
        case _:
            assert_never(wish)
