"""The model: what the tables must hold after each step that a producer, a worker or a person takes.

Workers here never forget a handle. What a real worker does with one after it lost the lease
(a completion that was late, an outcome that is offered twice) is what finds faults in fencing.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from pgtasks.engine.leases import Leases
from pgtasks.model import Claimed, tasks_of
from pgtasks.store import session, statements
from pgtasks.store.statements import Lane
from tests.database import Connection, rows, value
from tests.leases import steps
from tests.leases.steps import Handle
from tests.model.tables import Row, Tables, empty, read

WORKERS = 3
TYPE_LIMIT = 2
FAR_S = 3600.0


@dataclass
class Held:
    """A lease as the database has it."""

    worker: int
    task_ids: list[int]
    expired: bool = False


@dataclass
class World:
    """All that the model remembers."""

    live: dict[int, Row] = field(default_factory=dict)
    history: dict[int, tuple[str, int, int | None]] = field(default_factory=dict)
    dead: dict[int, tuple[str, int, int]] = field(default_factory=dict)
    attempts: Counter[tuple[int, int, int, str]] = field(default_factory=Counter)
    leases: dict[int, Held] = field(default_factory=dict)
    limits: dict[int, int | None] = field(default_factory=dict)
    keys: dict[int, str | None] = field(default_factory=dict)
    paused: bool = False
    known: set[Handle] = field(default_factory=set)
    lives: dict[int, int] = field(default_factory=dict)


class Queue(RuleBasedStateMachine):
    """Producers, three workers and a person, on one connection."""

    connection: Connection  # Set by the test on a subclass.
    handles = Bundle("handles")

    @initialize()
    def begin(self) -> None:
        """Start from empty tables, with one known task type."""
        empty(self.connection)
        rows(
            self.connection,
            "INSERT INTO pgtasks.task_types (name, queue, max_attempts, retry) VALUES (%s, 'default', %s, '{}')",
            steps.NAME,
            TYPE_LIMIT,
        )
        self.world = World()
        self.workers: list[UUID] = [steps.known_worker(self.connection, steps.NAME) for _ in range(WORKERS)]
        self.books = [Leases(steps.LEASE_S) for _ in range(WORKERS)]
        self.open: list[list[Handle]] = [[] for _ in range(WORKERS)]
        self.last: set[Handle] = set()
        self.cursors: dict[int, tuple[Any, int]] = {}
        for limit in (None, 1, 3):
            self._enqueue(None, 0, delayed=False, limit=limit)

    # --- Producers ---

    @rule(
        key=st.sampled_from([None, None, None, "a", "b"]),
        priority=st.sampled_from([0, 5]),
        delayed=st.sampled_from([False, False, True]),
        limit=st.sampled_from([None, 1, 3]),
    )
    def enqueue(self, key: str | None, priority: int, *, delayed: bool, limit: int | None) -> None:
        """Enqueue; a living task with the key is returned instead."""
        self._enqueue(key, priority, delayed=delayed, limit=limit)

    def _enqueue(self, key: str | None, priority: int, *, delayed: bool, limit: int | None) -> None:
        task_id, created = rows(
            self.connection,
            "SELECT id, created FROM pgtasks.enqueue_task(%s, unique_key => %s, priority => %s,"
            " max_attempts => %s, delay => make_interval(secs => %s))",
            steps.NAME,
            key,
            priority,
            limit,
            FAR_S if delayed else 0.0,
        )[0]
        living = [one for one, row in self.world.live.items() if key is not None and self.world.keys[one] == key]
        assert created == (not living)
        if living:
            assert [task_id] == living
            return
        self.world.live[task_id] = Row("queued", 0, None, due=not delayed)
        self.world.limits[task_id], self.world.keys[task_id] = limit, key

    # --- Workers ---

    @rule(
        target=handles,
        worker=st.integers(0, WORKERS - 1),
        count=st.integers(1, 4),
        front=st.booleans(),
        source=st.sampled_from(["head", "cursors", "suspects"]),
    )
    def claim(self, worker: int, count: int, source: str, *, front: bool) -> Any:
        """Claim from the head, or from cursors or the front, which miss tasks but take no wrong one, or suspects."""
        lanes = [Lane(priority, *place) for priority, place in sorted(self.cursors.items())[::-1]]
        claim: Any = {
            "head": statements.rescan,
            "cursors": statements.claim,
            "suspects": statements.claim_suspects,
        }[source]
        statement = claim(
            "default",
            *([lanes] if source == "cursors" else []),
            limit=count,
            names=[steps.NAME],
            worker_id=self.workers[worker],
            lease_s=steps.LEASE_S,
        )
        if source == "cursors" and front:
            statement = statements.follow(statement, 0)
        answer = session.fetch_all(self.connection, statement)
        claimed: list[Claimed] = tasks_of(answer) if source == "head" else answer
        if source == "head":
            assert {look.is_paused for look in answer} == {self.world.paused}
        due = [
            one
            for one, row in self.world.live.items()
            if row.state == "queued" and row.due and (row.losses > 0) == (source == "suspects")
        ]
        if self.world.paused:
            assert not claimed, "a paused queue gave tasks away"
        elif source != "cursors":
            assert len(claimed) == min(count, len(due))
        assert {task.id for task in claimed} <= set(due)
        assert len({task.lease_id for task in claimed}) <= 1
        for task in claimed:
            self._note_claim(worker, task)
        if claimed:
            lease_id = claimed[0].lease_id
            assert lease_id not in self.world.leases
            self.world.leases[lease_id] = Held(worker, sorted(task.id for task in claimed))
            self.books[worker].add(lease_id, len(claimed), 0.0)
        return multiple(*(Handle.of(task) for task in claimed))

    def _note_claim(self, worker: int, task: Claimed) -> None:
        before = self.world.live[task.id]
        limit = self.world.limits[task.id] or TYPE_LIMIT
        assert task.attempt == before.attempt + 1 <= limit, "started more often than allowed"
        assert task.losses == before.losses
        self.world.live[task.id] = Row("running", task.attempt, task.lease_id, due=True, losses=before.losses)
        self.open[worker].append(Handle.of(task))
        if task.attempt == limit:
            self.last.add(Handle.of(task))
        place = self.cursors.get(task.priority)
        if place is None or place < (task.run_at, task.id):
            self.cursors[task.priority] = (task.run_at, task.id)

    @rule(picked=st.lists(handles, min_size=1, max_size=3, unique=True))
    def complete(self, picked: list[Handle]) -> None:
        """Complete tasks, under leases that may be long gone, or a second time."""
        self._finish("complete", picked)

    @rule(
        kind=st.sampled_from(["retry", "retry", "retry_later", "retry_died", "bury", "cancelled"]),
        picked=st.lists(handles, min_size=1, max_size=3, unique=True),
    )
    def fail(self, kind: str, picked: list[Handle]) -> None:
        """Let tasks fail, or end as cancelled, likewise."""
        self._finish(kind, picked)

    @rule(kind=st.sampled_from(["release", "snooze"]), picked=st.lists(handles, min_size=1, max_size=3, unique=True))
    def give_back(self, kind: str, picked: list[Handle]) -> None:
        """Release or snooze tasks, likewise."""
        self._finish(kind, picked)

    def _finish(self, kind: str, picked: list[Handle]) -> None:
        # A worker retries no last attempt; an id comes once in a batch.
        retried = kind.startswith("retry")
        one_per_task = {handle.id: handle for handle in picked if not (retried and handle in self.last)}
        if not one_per_task:
            return
        offered = sorted(one_per_task.values())
        worker = self._owner(offered[0])
        fresh = [handle for handle in offered if self._is_fresh(handle)]
        unsettled = [handle.lease_id for handle in offered if handle in self.open[worker]]
        emptied = self.books[worker].emptied_by(unsettled)
        moved = _FINISH[kind](self.connection, self.workers[worker], offered, emptied)
        taken = [handle.id for handle in offered] if moved.ids is None else sorted(moved.ids)
        assert taken == [handle.id for handle in fresh], "a stale outcome was accepted, or a good one refused"
        for handle in fresh:
            self._note_outcome(kind, handle)
        for lease_id in emptied:
            held = self.world.leases.get(lease_id)
            if held is not None and held.worker == worker:
                del self.world.leases[lease_id]
        self.books[worker].close_tasks(unsettled)
        self.open[worker] = [handle for handle in self.open[worker] if handle not in offered]
        self._check_recognition(offered)

    def _note_outcome(self, kind: str, handle: Handle) -> None:
        world, row = self.world, self.world.live.pop(handle.id)
        if kind.startswith("retry") or kind == "bury":
            outcome = "worker_lost" if kind == "retry_died" else "failed"
            world.attempts[handle.id, row.attempt, handle.lease_id, outcome] += 1
        if row.cancel_requested and kind not in {"complete", "cancelled"}:
            world.history[handle.id] = ("cancelled", row.attempt, handle.lease_id)
        elif kind.startswith("retry"):
            losses = row.losses + 1 if kind == "retry_died" else 0
            world.live[handle.id] = Row("queued", row.attempt, None, due=kind != "retry_later", losses=losses)
        elif kind in {"release", "snooze"}:
            world.live[handle.id] = Row("queued", row.attempt - 1, None, due=kind == "release", losses=row.losses)
        elif kind == "complete":
            world.history[handle.id] = ("completed", row.attempt, handle.lease_id)
        elif kind == "cancelled":
            world.history[handle.id] = ("cancelled", row.attempt, handle.lease_id)
            world.attempts[handle.id, row.attempt, handle.lease_id, "cancelled"] += 1
        else:
            world.dead[handle.id] = ("permanent", row.attempt, handle.lease_id)
        if handle.id not in world.live or kind.startswith("retry"):
            world.known.add(handle)

    def _check_recognition(self, offered: list[Handle]) -> None:
        ours = {handle.id for handle in offered if handle in self.world.known}
        assert steps.recognise(self.connection, offered) == ours, "our own earlier write, or a lost lease?"

    @rule(worker=st.integers(0, WORKERS - 1))
    def beat(self, worker: int) -> None:
        """Renew what is not swept, and learn what is lost or to be cancelled."""
        asked, running = self.books[worker].ids(), list(self.open[worker])
        answer = steps.beat(self.connection, self.workers[worker], asked, running)
        kept = [one for one in asked if one in self.world.leases]
        assert sorted(answer.kept) == sorted(kept)
        for lease_id in kept:
            self.world.leases[lease_id].expired = False
        lost = {running[position - 1] for position in answer.lost}
        assert lost == {handle for handle in running if not self._is_fresh(handle)}
        wanted = [one.id for one in running if self._is_fresh(one) and self.world.live[one.id].cancel_requested]
        assert sorted(answer.cancelled) == sorted(wanted)

    @rule(data=st.data(), swept=st.sampled_from([False, True, True]))
    def time_passes(self, data: st.DataObject, *, swept: bool) -> None:
        """Let a lease expire, as its worker is dead, cut off or late; soon or later a sweep follows."""
        if self.world.leases:
            lease_id = data.draw(st.sampled_from(sorted(self.world.leases)))
            steps.expire(self.connection, lease_id)
            self.world.leases[lease_id].expired = True
        if swept:
            self._sweep()

    def _sweep(self) -> None:
        expired = sorted(one for one, held in self.world.leases.items() if held.expired)
        held = [task_id for lease_id in expired for task_id in self._tasks_of(lease_id)]
        fates = Counter(self._sweep_task(task_id) for task_id in held)
        swept = steps.sweep(self.connection)
        assert (swept.leases, swept.closed) == (len(expired), len(expired))
        assert (swept.requeued, swept.dead, swept.cancelled) == (fates["queued"], fates["dead"], fates["cancelled"])
        for lease_id in expired:
            del self.world.leases[lease_id]
        # The backoff of a second loss is up to a minute; it passes here at once.
        rows(
            self.connection,
            "UPDATE pgtasks.tasks SET run_at = clock_timestamp()"
            " WHERE state = 'queued' AND run_at BETWEEN clock_timestamp() AND clock_timestamp() + interval '2 minutes'",
        )

    def _tasks_of(self, lease_id: int) -> list[int]:
        return [one for one in self.world.leases[lease_id].task_ids if self._is_fresh(Handle(one, lease_id))]

    def _sweep_task(self, task_id: int) -> str:
        world, row = self.world, self.world.live.pop(task_id)
        assert row.lease_id is not None
        world.attempts[task_id, row.attempt, row.lease_id, "worker_lost"] += 1
        if row.cancel_requested:
            world.history[task_id] = ("cancelled", row.attempt, row.lease_id)
            return "cancelled"
        if row.attempt >= (world.limits[task_id] or TYPE_LIMIT):
            world.dead[task_id] = ("worker_lost", row.attempt, row.lease_id)
            return "dead"
        world.live[task_id] = Row("queued", row.attempt, None, due=True, losses=row.losses + 1)
        return "queued"

    # --- People ---

    @rule(action=st.sampled_from(["cancel", "retry", "retry", "pause", "resume", "resume"]), data=st.data())
    def person(self, action: str, data: st.DataObject) -> None:
        """Cancel or retry any task there ever was, stop claims, or let them go on."""
        if action == "cancel":
            self._cancel(self._any_task(data))
        elif action == "retry":
            self._retry(self._any_task(data))
        else:
            self._pause_or_resume(paused=action == "pause")

    def _cancel(self, task_id: int) -> None:
        answer = value(self.connection, "SELECT pgtasks.cancel(%s)", task_id)
        row = self.world.live.get(task_id)
        if row is None:
            assert answer == ("finished" if task_id in {*self.world.history, *self.world.dead} else None)
        elif row.state == "running":
            assert answer == "requested"
            self.world.live[task_id] = row._replace(cancel_requested=True)
        else:
            assert answer == "cancelled"
            del self.world.live[task_id]
            self.world.history[task_id] = ("cancelled", row.attempt, None)

    def _retry(self, task_id: int) -> None:
        answer = value(self.connection, "SELECT pgtasks.retry(%s)", task_id)
        row = self.world.live.get(task_id)
        if row is not None:
            assert answer == ("running" if row.state == "running" else "due")
            self.world.live[task_id] = row if row.state == "running" else row._replace(due=True, losses=0)
        elif task_id in self.world.dead:
            key = self.world.keys[task_id]
            if key is not None and key in {self.world.keys[one] for one in self.world.live}:
                assert answer == "unique_key_taken"
                return
            assert answer == "replayed"
            _, _, self.world.lives[task_id] = self.world.dead.pop(task_id)
            self.world.live[task_id] = Row("queued", 0, None, due=True)
        else:
            assert answer == ("finished" if task_id in self.world.history else None)

    def _pause_or_resume(self, *, paused: bool) -> None:
        changed = value(self.connection, f"SELECT pgtasks.{'pause' if paused else 'resume'}('default')")
        assert changed == (paused != self.world.paused)
        self.world.paused = paused

    # --- What must hold after every step ---

    @invariant()
    def tables_agree(self) -> None:
        """Compare every table with the model, whole."""
        world, tables = self.world, read(self.connection)
        assert tables.live == world.live
        assert tables.history == world.history
        assert tables.dead == world.dead
        assert tables.attempts == world.attempts
        held = {one: (self.workers[lease.worker], lease.expired, lease.task_ids) for one, lease in world.leases.items()}
        assert tables.leases == held
        self._structure_holds(tables)

    def _structure_holds(self, tables: Tables) -> None:
        """Check what needs no model: one place per task, one lease per run, no gap in its attempts."""
        places = Counter([*tables.live, *tables.history, *tables.dead])
        assert not places or max(places.values()) == 1, "a task is in two tables"
        assert len({(task, lease) for task, _, lease, _ in tables.attempts}) == tables.attempts.total()
        for task_id, row in tables.live.items():
            ended = sorted(
                attempt
                for task, attempt, lease, _ in tables.attempts.elements()
                if task == task_id and lease > self.world.lives.get(task_id, 0)
            )
            assert ended == list(range(1, row.attempt + (row.state == "queued"))), "attempts have a gap"
            if row.lease_id is not None:
                assert task_id in tables.leases[row.lease_id][2], "nothing leads the sweep to this task"

    # --- Helpers ---

    def _is_fresh(self, handle: Handle) -> bool:
        row = self.world.live.get(handle.id)
        return row is not None and row.lease_id == handle.lease_id

    def _owner(self, handle: Handle) -> int:
        return next((one for one in range(WORKERS) if handle in self.open[one]), 0)

    def _any_task(self, data: st.DataObject) -> int:
        ids = sorted({*self.world.live, *self.world.history, *self.world.dead}) or [1]
        return data.draw(st.sampled_from(ids))


_FINISH: dict[str, Any] = {
    "complete": steps.complete,
    "retry": steps.retry,
    "retry_later": lambda *given: steps.retry(*given, delay_s=FAR_S),
    "retry_died": lambda *given: steps.retry(*given, failure=steps.DIED),
    "bury": steps.bury,
    "cancelled": steps.finish_cancelled,
    "release": steps.release,
    "snooze": lambda *given: steps.release(*given, delay_s=FAR_S),
}
