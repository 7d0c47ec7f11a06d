"""What workers do to tasks in SQL, one function per step, without a worker around it."""

import uuid
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from pgtasks.model import Claimed, WorkerInfo, tasks_of
from pgtasks.outcome import Cancelled, Completed, Dead, Failure, RetryIn
from pgtasks.store import conninfo, session, statements
from pgtasks.store.session import Statement, SyncConnection
from pgtasks.store.statements import Beat, Moved, Swept
from tests.database import Connection, rows, value

LEASE_S = 30.0
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
NAME = "job"
FAILURE = Failure("RuntimeError", "failed as asked", "")
DIED = Failure("pgtasks.errors.ProcessDied", "its process was killed by SIGKILL (9)", "", "worker_lost")


class Handle(NamedTuple):
    """What a worker remembers of a claimed task."""

    id: int
    lease_id: int

    @classmethod
    def of(cls, task: Claimed) -> "Handle":
        """Return the handle of a claimed row."""
        return cls(task.id, task.lease_id)


def worker_id() -> UUID:
    """Return the id of a new worker."""
    return uuid.uuid4()


def known_worker(connection: SyncConnection, *names: str, isolated: Sequence[str] = ()) -> UUID:
    """Make a worker with handlers of these names known; gives its id."""
    worker = WorkerInfo(
        worker_id(), "test", ("default",), tuple(sorted(names)), 1, LEASE_S, "0", isolated=tuple(sorted(isolated))
    )
    session.fetch_all(connection, statements.register(worker))
    return worker.id


def connect(dsn: str, *, planner: bool = True, name: str = "finish") -> SyncConnection:
    """Open a connection as a worker does; without its planner settings as behind a pooler."""
    part: conninfo.Part = "finish" if planner else "client"
    return session.connect(dsn, part, worker=name)


def fetch(connection: Connection, statement: Statement[Any]) -> Any:
    """Run a statement and return its first row, None without one."""
    return session.fetch_one(connection, statement)


def enqueue(connection: Connection, count: int = 1, *, name: str = NAME, max_attempts: int | None = None) -> list[int]:
    """Insert tasks and return their ids."""
    found = rows(
        connection,
        "INSERT INTO pgtasks.tasks (name, max_attempts) SELECT %s, %s FROM generate_series(1, %s) RETURNING id",
        name,
        max_attempts,
        count,
    )
    return [task_id for (task_id,) in found]


def claim(connection: Connection, worker: UUID, count: int = 1, *, lease_s: float = LEASE_S) -> list[Claimed]:
    """Claim from the head of the default queue."""
    statement = statements.rescan("default", limit=count, names=[NAME], worker_id=worker, lease_s=lease_s)
    return tasks_of(session.fetch_all(connection, statement))


def complete(
    connection: Connection, worker: UUID, handles: Sequence[tuple[int, int]], emptied: Iterable[int] = ()
) -> Moved:
    """Complete tasks with the result 1."""
    ended = sorted(handles)
    outcomes = [Completed("1")] * len(ended)
    moved: Moved = fetch(connection, statements.complete(worker, ended, outcomes, list(emptied)))
    return moved


def retry(
    connection: Connection,
    worker: UUID,
    handles: Sequence[tuple[int, int]],
    emptied: Iterable[int] = (),
    *,
    delay_s: float = 0.0,
    failure: Failure = FAILURE,
) -> Moved:
    """Fail tasks, to be tried again."""
    ended = sorted(handles)
    outcomes = [RetryIn(delay_s, failure)] * len(ended)
    moved: Moved = fetch(connection, statements.retry(worker, ended, outcomes, list(emptied)))
    return moved


def bury(
    connection: Connection, worker: UUID, handles: Sequence[tuple[int, int]], emptied: Iterable[int] = ()
) -> Moved:
    """Fail tasks for good."""
    ended = sorted(handles)
    outcomes = [Dead("permanent", FAILURE)] * len(ended)
    moved: Moved = fetch(connection, statements.bury(worker, ended, outcomes, list(emptied)))
    return moved


def finish_cancelled(
    connection: Connection, worker: UUID, handles: Sequence[tuple[int, int]], emptied: Iterable[int] = ()
) -> Moved:
    """Finish running tasks as cancelled."""
    ended = sorted(handles)
    outcomes = [Cancelled("as asked")] * len(ended)
    moved: Moved = fetch(connection, statements.cancelled(worker, ended, outcomes, list(emptied)))
    return moved


def release(
    connection: Connection,
    worker: UUID,
    handles: Sequence[tuple[int, int]],
    emptied: Iterable[int] = (),
    *,
    delay_s: float = 0.0,
) -> Moved:
    """Give tasks back."""
    ended = sorted(handles)
    moved: Moved = fetch(connection, statements.release(worker, ended, [delay_s] * len(ended), list(emptied)))
    return moved


def beat(
    connection: Connection,
    worker: UUID,
    lease_ids: Sequence[int],
    running: Sequence[tuple[int, int]] = (),
    *,
    lease_s: float = LEASE_S,
) -> Beat:
    """Send a heartbeat."""
    statement = statements.beat(
        worker, lease_s=lease_s, lease_ids=lease_ids, running=running, busy=len(running), draining=False
    )
    answer: Beat = fetch(connection, statement)
    return answer


def expire(connection: Connection, *lease_ids: int) -> None:
    """Let leases expire, a second ago; all of them when none is named."""
    rows(
        connection,
        "UPDATE pgtasks.leases SET expires_at = clock_timestamp() - interval '1 second' WHERE id = ANY(%s) OR %s",
        list(lease_ids),
        not lease_ids,
    )


def sweep(connection: Connection, *, limit: int = 50, fresh_s: float = 60.0) -> Swept:
    """Sweep as a worker whose heartbeat counts as fresh for some seconds."""
    now: datetime = value(connection, "SELECT clock_timestamp()")
    swept: Swept = fetch(connection, statements.sweep(now + timedelta(seconds=fresh_s), limit=limit))
    return swept


def recognise(connection: Connection, handles: Sequence[tuple[int, int]]) -> set[int]:
    """Ask which of these tasks ended under exactly these leases."""
    return set(
        session.fetch_all(
            connection,
            statements.recognise(sorted(handles), traceless=[False] * len(handles), queues=["default"] * len(handles)),
        )
    )


def outcomes(connection: Connection, task_id: int) -> list[str]:
    """Return the outcomes of a task's attempts that did not end in success, oldest first."""
    found = rows(connection, "SELECT outcome FROM pgtasks.attempts WHERE task_id = %s ORDER BY finished_at", task_id)
    return [outcome for (outcome,) in found]


def status(connection: Connection, task_id: int) -> str | None:
    """Return a task's status as people see it, None when there is no such task."""
    found = rows(connection, "SELECT status FROM pgtasks.all_tasks WHERE id = %s", task_id)
    assert len(found) <= 1, f"task {task_id} is in several tables: {found}"
    return found[0][0] if found else None
