"""The work of a run: producers that enqueue in every way, an operator who cancels, a witness who looks.

Each producer is a thread with its own random source, made from the seed. Every token that a producer
wants to enqueue is logged with what became of it. A producer commits, rolls back on purpose, or does
not learn which of the two happened: then the token may be there, once, or not at all.
"""

import asyncio
import json
import os
import random
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Self

import psycopg

from pgtasks import App
from pgtasks.errors import EnqueueError, PgtasksError
from pgtasks.model import NewTask
from tests.access import as_role
from tests.apps import chaos
from tests.chaos.history import Sent, Status

# How often each kind is enqueued, and the smallest pause of a producer between two of its steps.
MIX = {
    "quick": 60,
    "brief": 20,
    "flaky": 6,
    "doomed": 2,
    "snoozing": 4,
    "cancellable": 2,
    "lasting": 3,
    "steady": 8,
    "isolated": 3,
    "poison": 0.2,
    "fatal": 0.1,
}
KEYS = 8
LATE_S = 0.8
STOP_S = 30.0
CONNECT_S = 2

WITNESSED = {
    "two living tasks have one unique key": """
        SELECT t.unique_key, count(*) FROM pgtasks.tasks AS t
        WHERE t.unique_key IS NOT NULL GROUP BY t.unique_key HAVING count(*) > 1""",
    "a running task has a lease that does not exist or does not name it": """
        SELECT t.id, t.lease_id FROM pgtasks.tasks AS t
        WHERE t.state = 'running' AND NOT EXISTS (
            SELECT FROM pgtasks.leases AS l WHERE l.id = t.lease_id AND t.id = ANY(l.task_ids))""",
    "a living task is in history or among the dead letters": """
        SELECT t.id FROM pgtasks.tasks AS t WHERE EXISTS (
            SELECT FROM pgtasks.history AS h WHERE h.id = t.id
            UNION ALL SELECT FROM pgtasks.dead_letters AS d WHERE d.id = t.id)""",
}


@dataclass(frozen=True)
class Order:
    """One task that a producer is about to enqueue."""

    token: str
    kind: str
    priority: int | None = None
    delay_s: float | None = None
    key: str | None = None

    def payload(self) -> str:
        """Give the task's payload."""
        return json.dumps({"token": self.token})


class Workload:
    """Producers, operator and witness; a context manager, which stops them."""

    def __init__(
        self,
        dsn: str,
        log: Path,
        seed: int,
        *,
        mix: dict[str, float] | None = None,
        producers: int = 4,
        pause_s: float = 0.1,
        unique: bool = True,
    ) -> None:
        self.cancels: set[int] = set()
        self.sightings: list[str] = []
        # Threads that did not stop, and where they were.
        self.stuck: list[str] = []
        self.sent: dict[str, int] = {}
        self._mix, self._pause_s, self._unique = mix or MIX, pause_s, unique
        # It is given the harness's address; nobody in here has that one's rights.
        patient = psycopg.conninfo.make_conninfo(dsn, connect_timeout=CONNECT_S)
        self._dsn, self._admin, self._reader = (as_role(patient, role) for role in ("producer", "admin", "reader"))
        self._file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._cancellable: list[int] = []
        self._tokens = count(1)
        self._app = App(self._dsn)
        ways: list[Callable[[random.Random], None]] = [self._by_insert, self._by_function, self._by_app, self._by_bulk]
        self._threads = [
            threading.Thread(target=self._produce, args=(way, random.Random(f"{seed}/{number}")), daemon=True)
            for number, way in enumerate(ways[i % len(ways)] for i in range(producers))
        ]
        rng = random.Random(f"{seed}/operator")
        self._threads += [
            threading.Thread(
                target=lambda: asyncio.run(self._produce_async(random.Random(f"{seed}/async"))), daemon=True
            ),
            threading.Thread(target=self._operate, args=(rng,), daemon=True),
            threading.Thread(target=self._watch, daemon=True),
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self.stop()
        os.close(self._file)

    def stop(self) -> None:
        """Stop all of them; may be called again."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(STOP_S)
            frame = sys._current_frames().get(thread.ident or 0) if thread.is_alive() else None  # noqa: SLF001 - documented, and there is no other way
            if frame is not None:
                self.stuck.append(f"{thread.name} does not end:\n{''.join(traceback.format_stack(frame))}")

    def _produce(self, way: Callable[[random.Random], None], rng: random.Random) -> None:
        while not self._stopping.wait(self._pause_s * rng.uniform(0.5, 1.5)):
            # Whatever is the matter with the server is over soon; what became of the tokens is logged already.
            with suppress(psycopg.Error, PgtasksError):
                way(rng)
        self._app.close()

    async def _produce_async(self, rng: random.Random) -> None:
        app = App(self._dsn)
        while not self._stopping.is_set():
            await asyncio.sleep(self._pause_s * rng.uniform(0.5, 1.5))
            order = self._order(rng)
            with suppress(PgtasksError), self._deciding([order], "aenqueue") as verdict:
                found = await app.aenqueue(order.kind, {"token": order.token}, **_options(order))
                verdict.answered(found.id, created=found.created)
        await app.aclose()

    def _order(self, rng: random.Random, *, keyed: bool = True) -> Order:
        kind = rng.choices([*self._mix], weights=[*self._mix.values()])[0]
        # Only what ends soon has a key, so that keys are free again and fought for.
        has_key = keyed and self._unique and kind in {"quick", "brief", "steady"} and rng.random() < 0.25
        return Order(
            token=f"{next(self._tokens):07d}",
            kind=kind,
            priority=rng.choice([None, None, 0, 5, -5]),
            delay_s=rng.choice([None, None, None, rng.uniform(0, 2)]),
            key=f"key-{rng.randrange(KEYS)}" if has_key else None,
        )

    def _deciding(self, orders: Sequence[Order], via: str) -> "_Verdict":
        return _Verdict(self, orders, via)

    def _by_insert(self, rng: random.Random) -> None:
        """Insert some rows in a transaction, which commits, late at times, or is rolled back on purpose."""
        orders = [self._order(rng, keyed=False) for _ in range(rng.randint(1, 4))]
        with psycopg.connect(self._dsn) as connection, self._deciding(orders, "insert") as verdict:
            verdict.status = "rolled_back"
            for order in orders:
                connection.execute(_INSERT, (order.kind, order.payload(), _queue(order), order.priority, order.delay_s))
            if rng.random() < 0.1:
                self._stopping.wait(LATE_S)
            if rng.random() < 0.15:
                connection.rollback()
                return
            verdict.status = "info"
            connection.commit()
            verdict.status = "ok"

    def _by_function(self, rng: random.Random) -> None:
        """Call the SQL function, at once on its own."""
        order = self._order(rng)
        with (
            psycopg.connect(self._dsn, autocommit=True) as connection,
            self._deciding([order], "function") as verdict,
        ):
            values = (order.kind, order.payload(), order.priority, order.delay_s, order.key)
            found = connection.execute(_FUNCTION, values).fetchone()
            if found is not None:
                verdict.answered(found[0], created=found[1])

    def _by_app(self, rng: random.Random) -> None:
        """Enqueue from Python, through its own connections or in a transaction of ours."""
        order = self._order(rng)
        with self._deciding([order], "enqueue") as verdict:
            if rng.random() < 0.7:
                found = self._app.enqueue(order.kind, {"token": order.token}, **_options(order))
                verdict.answered(found.id, created=found.created)
                return
            with psycopg.connect(self._dsn) as connection:
                verdict.status = "rolled_back"
                found = self._app.enqueue(order.kind, {"token": order.token}, connection=connection, **_options(order))
                if rng.random() < 0.3:
                    connection.rollback()
                    return
                verdict.status = "info"
                connection.commit()
                verdict.answered(found.id, created=found.created)

    def _by_bulk(self, rng: random.Random) -> None:
        """Enqueue several at once, all or none."""
        orders = [self._order(rng, keyed=False) for _ in range(rng.randint(2, 8))]
        tasks = [
            NewTask(order.kind, order.payload(), queue=_queue(order), priority=order.priority, delay_s=order.delay_s)
            for order in orders
        ]
        with self._deciding(orders, "enqueue_many") as verdict:
            self._app.enqueue_many(tasks)
            verdict.status = "ok"

    def log(self, sent: Sent) -> None:
        """Log what became of a token."""
        with self._lock:
            self.sent[sent.status] = self.sent.get(sent.status, 0) + 1
            if sent.kind == "cancellable" and sent.task_id is not None:
                self._cancellable.append(sent.task_id)
        os.write(self._file, (json.dumps(sent._asdict()) + "\n").encode())

    def _operate(self, rng: random.Random) -> None:
        """Cancel every other task that takes long enough for that."""
        while not self._stopping.wait(0.3):
            with self._lock:
                chosen, self._cancellable = [one for one in self._cancellable if rng.random() < 0.5], []
            self.cancels.update(chosen)
            with suppress(psycopg.Error), psycopg.connect(self._admin, autocommit=True) as connection:
                for task_id in chosen:
                    connection.execute("SELECT pgtasks.cancel(%s)", (task_id,))

    def _watch(self) -> None:
        """Look, again and again, for what no snapshot may ever show."""
        while not self._stopping.wait(0.5):
            with suppress(psycopg.Error), psycopg.connect(self._reader, autocommit=True) as connection:
                for what, query in WITNESSED.items():
                    self.sightings += [f"{what}: {row}" for row in connection.execute(query.encode()).fetchall()]


class _Verdict:
    """What became of some orders: logged when the block ends, however it ends."""

    def __init__(self, workload: Workload, orders: Sequence[Order], via: str) -> None:
        self.status: Status = "info"
        self.task_id: int | None = None
        self._workload, self._orders, self._via = workload, orders, via

    def answered(self, task_id: int, *, created: bool) -> None:
        """Note the answer of a single enqueue."""
        self.status, self.task_id = "ok" if created else "existing", task_id

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        if isinstance(error, EnqueueError):
            self.status = "rolled_back"
        for order in self._orders:
            self._workload.log(Sent(order.token, order.kind, self.status, self._via, order.key, self.task_id))


def _queue(order: Order) -> str:
    """Give the queue of a task, which a plain INSERT has to know."""
    return chaos.app.handlers[order.kind].queue


def _options(order: Order) -> dict[str, Any]:
    return {"priority": order.priority, "delay": order.delay_s, "unique_key": order.key}


_INSERT = b"""
INSERT INTO pgtasks.tasks (name, payload, queue, priority, run_at)
VALUES (%s, %s, %s, coalesce(%s, 0), clock_timestamp() + make_interval(secs => coalesce(%s, 0)))"""
_FUNCTION = b"""
SELECT e.id, e.created FROM pgtasks.enqueue_task(
    %s, %s, priority => %s, delay => make_interval(secs => %s), unique_key => %s) AS e"""


def wait_drained(dsn: str, timeout_s: float, note: Callable[[int], None]) -> float:
    """Wait until every task has ended and no lease is left, or for so long; gives the seconds until no task was left.

    A lease that somebody had locked as its last task ended is left to the sweep, which takes it when it expires.
    """
    began = time.monotonic()
    done_s = None
    query = b"SELECT (SELECT count(*) FROM pgtasks.tasks), (SELECT count(*) FROM pgtasks.leases)"
    while (took_s := time.monotonic() - began) < timeout_s:
        with suppress(psycopg.Error), psycopg.connect(dsn, autocommit=True) as connection:
            tasks, leases = connection.execute(query).fetchone() or (1, 1)
            note(tasks)
            if not tasks and done_s is None:
                done_s = took_s
            if not tasks and not leases:
                break
        time.sleep(0.1)
    return took_s if done_s is None else done_s
