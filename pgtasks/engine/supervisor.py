"""`pgtasks worker --processes N`: the process that keeps N workers running, and does no work itself.

    RUNNING   start the first worker; when it has greeted, the others. A worker that ends is
              followed by another (``restarts``); one that died leaves its leases to
              ``lost_workers``
                all places are empty for good                                       -> ENDED
                every place's worker ended with a permanent error                   -> ENDED
                a signal: tell all workers                                          -> STOPPING
    STOPPING  nothing is started any more
                second signal: tell them, they skip their grace time
                third signal, or grace time and some seconds are over: SIGKILL
                all are dead                                                        -> ENDED
    ENDED     a first look at the leases of each lost worker, for some seconds, and in a stop no
              longer than the grace time and a second; exit

The first worker goes ahead, because what is wrong with an app, a setting or a schema is wrong for
all, and is then said once. Each worker is an ordinary one, started by the same command line, with
an id that we choose and a line to us (``supervised``). When we are killed they read the end of that
line, drain and end.

It is synchronous and has one thread, but for ``lost_workers``. It imports no user code and holds no
connection while nothing happens. It reaps whatever dies, so that it may be process 1 of a container.
A dead worker is known by the exit status that the kernel keeps for its parent alone.
"""

from __future__ import annotations

import contextlib
import os
import random
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from pgtasks import events
from pgtasks.engine.departure import EXIT_INTERRUPTED
from pgtasks.engine.lost_workers import LostWorkers
from pgtasks.engine.restarts import End, Restart, after_end, exit_code, is_hopeless
from pgtasks.engine.seat import Seat
from pgtasks.errors import ProcessDied
from pgtasks.settings import WorkerSettings

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_SIGNALS_TO_KILL = 3
# How much longer than its grace time a worker gets to end: its last statements have limits too.
KILL_AFTER_S = 8.0
# How long a database that is away keeps the supervisor at its end, and in a stop beyond the grace time.
GIVE_BACK_S, GIVE_BACK_STOPPING_S = 5.0, 1.0
# The same after a second signal; and the least of it, the more if it has killed workers, which gave nothing back.
GIVE_BACK_S_LEAST, GIVE_BACK_KILLED_S = 0.5, 1.0
_WAKE_BYTES = 4096


class Herald(Protocol):
    """Whom the supervisor tells how it is."""

    def ready(self) -> None:
        """The first worker has begun."""

    def stopping(self) -> None:
        """All workers are told to end."""

    def beat(self) -> float | None:
        """The loop goes round; gives when it is to call again, on the monotonic clock, None for never."""


def supervise(
    command: list[str],
    environ: Mapping[str, str],
    settings: WorkerSettings,
    *,
    join_local: Callable[[], None],
    herald: Herald,
) -> int:
    """Keep ``settings.processes`` workers running until a signal or their end; gives the exit code.

    ``command`` and ``environ`` start one worker. ``join_local`` is called once when they turn
    out to use the local server, to keep it running while none of them lives. ``herald`` is told
    how things are. Must be called in
    the main thread, which is the one that gets signals.
    """
    seats = [Seat(command, dict(environ), place) for place in range(settings.processes)]
    return Supervisor(seats, settings, random.Random(), join_local, herald).run()


class Supervisor:
    """The loop: it waits for signals, greetings, deaths and moments, and reacts to each."""

    def __init__(
        self,
        seats: list[Seat],
        settings: WorkerSettings,
        rng: random.Random,
        join_local: Callable[[], None],
        herald: Herald,
    ) -> None:
        self._herald = herald
        self._seats, self._settings, self._rng, self._join_local = seats, settings, rng, join_local
        self._signals: list[int] = []
        self._heeded = 0
        self._kill_at: float | None = None
        self._stop_by = 0.0
        self._killed = False
        self._proven = False
        self._woken, self._waker = socket.socketpair()
        for end in (self._woken, self._waker):
            end.settimeout(0.0)
        self._lost = LostWorkers(settings.pooler, rng, self._wake)

    def run(self) -> int:
        """Supervise until all have ended; gives the exit code."""
        with self._signals_caught():
            events.info("supervisor started", pid=os.getpid(), processes=len(self._seats))
            self._seats[0].start_at = time.monotonic()
            while any(seat.pid is not None or seat.start_at is not None for seat in self._seats):
                self._wait()
                self._heed_signals()
                self._hear()
                self._reap()
                self._start_due()
                self._kill_late()
                self._lost.work(time.monotonic())
            self._give_back()
        code = exit_code([seat.last_code for seat in self._seats], interrupted=self._heeded > 1)
        events.info("supervisor stopped", exit_code=code)
        return code

    @contextmanager
    def _signals_caught(self) -> Iterator[None]:
        """Note signals, and be woken by each, SIGCHLD included."""
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        for number in SIGNALS:
            signal.signal(number, self._on_signal)
        # A handler, if only an empty one: the default, or SIG_IGN from a parent, wakes nobody.
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        try:
            yield
        finally:
            signal.set_wakeup_fd(-1)

    def _on_signal(self, number: int, _frame: object) -> None:
        self._signals.append(number)
        if len(self._signals) > _SIGNALS_TO_KILL:
            os._exit(EXIT_INTERRUPTED)

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._waker.send(b"\0")

    def _wait(self) -> None:
        """Wait until something happened or some moment came."""
        moments = [self._kill_at, self._lost.next_at(), self._herald.beat(), *(seat.start_at for seat in self._seats)]
        soonest = min((moment for moment in moments if moment is not None), default=None)
        timeout_s = None if soonest is None else max(0.0, soonest - time.monotonic())
        with selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            for seat in self._seats:
                if seat.unheard is not None:
                    selector.register(seat.unheard, selectors.EVENT_READ)
            selector.select(timeout_s)
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(_WAKE_BYTES)

    def _heed_signals(self) -> None:
        """Begin to stop, or to stop sooner, for each signal that came."""
        while self._heeded < len(self._signals):
            number = self._signals[self._heeded]
            self._heeded += 1
            events.info("signal received", signal=signal.Signals(number).name, count=self._heeded)
            grace_s = self._settings.shutdown_grace_s if self._heeded == 1 else 0.0
            self._kill_at = time.monotonic() + (grace_s + KILL_AFTER_S if self._heeded < _SIGNALS_TO_KILL else 0.0)
            self._stop_by = time.monotonic() + (
                grace_s + GIVE_BACK_STOPPING_S if self._heeded == 1 else GIVE_BACK_S_LEAST
            )
            self._herald.stopping()
            for seat in self._seats:
                seat.start_at = None
                seat.tell(number)

    def _give_back(self) -> None:
        """Have a look at the lost workers' leases; signals that come meanwhile shorten that."""
        since = time.monotonic()

        def until() -> float:
            self._heed_signals()
            longest = since + GIVE_BACK_S
            least = since + (GIVE_BACK_KILLED_S if self._killed else GIVE_BACK_S_LEAST)
            return min(longest, max(least, self._stop_by)) if self._heeded else longest

        self._lost.finish(until)

    def _hear(self) -> None:
        """Take greetings; after the first one the other workers may start."""
        for seat in self._seats:
            if not seat.hear():
                continue
            if not self._proven:
                self._proven = True
                self._herald.ready()
                if seat.greeting is not None and seat.greeting.local:
                    self._join_local()
                for other in self._seats:
                    if other is not seat and not self._heeded:
                        other.start_at = time.monotonic()

    def _reap(self) -> None:
        """Collect the dead: ours, and as process 1 whatever else was left to us."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            for seat in self._seats:
                if seat.pid == pid:
                    self._bury(seat, pid, os.waitstatus_to_exitcode(status))

    def _bury(self, seat: Seat, pid: int, code: int) -> None:
        """See to what a worker left, and to its place."""
        seat.hear()  # It may have greeted just before it died.
        if self._heeded and seat.greeting is None and code == -signal.SIGTERM:
            code = 0  # Told to stop before it could listen.
        end = seat.ended(code)
        # One that was asked to end and did has tried to give back what it had, in the time it was given.
        tried = code >= 0 and 0 < self._heeded < _SIGNALS_TO_KILL
        if end.begun and code and not tried and seat.greeting is not None:
            self._lost.add(seat.worker_id, seat.greeting.dsn, str(ProcessDied.of(code)), time.monotonic())
        if not self._heeded:
            seat.follow(after_end(end, proven=self._proven, draining=self._settings.drain, rng=self._rng))
        self._say_ended(seat, pid, end)
        if self._proven and is_hopeless(one.last_code for one in self._seats):
            events.error("no worker can start", exit_code=code, advice="restarts do not help; see the errors above")
            for one in self._seats:
                one.start_at = None

    def _say_ended(self, seat: Seat, pid: int, end: End) -> None:
        how = {"exit_code": end.code} if end.signal_name is None else {"signal": end.signal_name}
        again = {} if seat.start_at is None else {"restart_in_s": round(max(0.0, seat.start_at - time.monotonic()), 1)}
        say = events.warning if end.code and not self._heeded else events.info
        say("worker process ended", pid=pid, **how, lived_s=round(end.lived_s, 1), **again, worker=seat.worker_id)

    def _start_due(self) -> None:
        for seat in self._seats:
            if seat.start_at is None or seat.start_at > time.monotonic():
                continue
            try:
                seat.start()
            except OSError as error:
                decision = after_end(seat.not_started(), proven=True, draining=False, rng=self._rng)
                seat.follow(decision)
                delay_s = decision.delay_s if isinstance(decision, Restart) else None
                events.error("worker process cannot be started", error=str(error), retry_in_s=delay_s)

    def _kill_late(self) -> None:
        """Kill who has not ended in time."""
        if self._kill_at is None or time.monotonic() < self._kill_at:
            return
        self._kill_at = None
        late = [seat for seat in self._seats if seat.pid is not None]
        for seat in late:
            seat.kill()
        if late:
            self._killed = True
            events.warning("worker processes killed", pids=[seat.pid for seat in late])
