"""The loop of `pgtasks top`: it draws, waits for a key, an answer or the next look, and draws again."""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from queue import Empty
from typing import Literal, assert_never

from rich.console import Console
from rich.live import Live

from pgtasks.cli import render
from pgtasks.cli.database import database
from pgtasks.cli.top_keys import Terminal, Woken
from pgtasks.cli.top_reader import Answer, Broken, LookAgain, Reader, Said, Trouble
from pgtasks.cli.top_screen import screen
from pgtasks.cli.top_state import Picture, Quit, View, absorb, press, settled
from pgtasks.store.watching import Look

# For the reader to close its connection; it may as well wait for a database that is gone.
_PATIENCE_S = 1.0
# A frozen screen, and one that waits for an answer, are drawn anew for keys and signals only.
_IDLE_S = 60.0

Outcome = Literal["quit", "suspend", "redraw"]


def run(dsn: str | None, interval_s: float) -> None:
    """Show what goes on until somebody quits; raises SchemaError or DatabaseError for what no second try helps."""
    with database(dsn) as used, Terminal() as terminal:
        reader = Reader(used, terminal.wake)
        reader.start()
        try:
            _Top(terminal, reader, interval_s).run()
        except EOFError:
            return
        finally:
            reader.stop(_PATIENCE_S)


class _Top:
    """What is known, what is chosen, and when to look again."""

    def __init__(self, terminal: Terminal, reader: Reader, interval_s: float) -> None:
        self._terminal, self._reader, self._interval_s = terminal, reader, interval_s
        self._console: Console = render.console()
        self._picture: Picture | None = None
        self._view = View()
        self._last_look: Look | None = None
        self._next_look_at = time.monotonic()
        self._is_looking = False

    def run(self) -> None:
        """Take the terminal, and take it again after each time that it was given back."""
        outcome: Outcome = "redraw"
        while outcome != "quit":
            with (
                self._terminal.grabbed(),
                Live(console=self._console, auto_refresh=False, screen=True, redirect_stderr=False) as live,
            ):
                outcome = self._until_left(live)
            if outcome == "suspend":
                self._terminal.suspend()

    def _until_left(self, live: Live) -> Outcome:
        while True:
            self._look_if_due()
            size = self._console.size
            drawing = screen(self._picture, self._view, interval_s=self._interval_s, height=size.height)
            live.update(drawing, refresh=True)
            woken = self._terminal.wait(self._sleep_s())
            if signal.SIGTSTP in woken.signals:
                return "suspend"
            if signal.SIGCONT in woken.signals:
                # Somebody stopped us without our knowing; the shell has set up the terminal for itself.
                return "redraw"
            self._take_answers()
            if self._take_keys(woken):
                return "quit"

    def _sleep_s(self) -> float:
        if self._view.frozen or self._is_looking:
            return _IDLE_S
        return self._next_look_at - time.monotonic()

    def _look_if_due(self) -> None:
        if self._is_looking or self._view.frozen or time.monotonic() < self._next_look_at:
            return
        self._reader.ask(LookAgain(self._last_look.until if self._last_look is not None else None))
        self._is_looking = True

    def _take_answers(self) -> None:
        while True:
            try:
                answer = self._reader.answers.get_nowait()
            except Empty:
                return
            self._take(answer)

    def _take(self, answer: Answer) -> None:
        match answer:
            case Look():
                self._looked()
                self._last_look = answer
                if not self._view.frozen:
                    self._picture = absorb(self._picture, answer)
                    self._view = replace(settled(self._view, self._picture), trouble="")
            case Trouble(text):
                self._looked()
                self._view = replace(self._view, trouble=text)
            case Said(text):
                self._view = replace(self._view, said=text)
                self._next_look_at = time.monotonic()
            case Broken(error):
                raise error
            case _:
                assert_never(answer)

    def _looked(self) -> None:
        self._is_looking = False
        self._next_look_at = time.monotonic() + self._interval_s

    def _take_keys(self, woken: Woken) -> bool:
        """Do what the keys say; true when one of them says to quit."""
        for key in woken.keys:
            was_asking = self._view.asking is not None
            self._view, action = press(self._view, self._picture, key)
            if isinstance(action, Quit):
                return True
            if action is not None:
                self._reader.ask(action)
            if self._view.asking is not None and not was_asking:
                # What was typed or pasted before the question stood there is no answer to it.
                return False
        return False
