"""The tables as plain values, to be compared with a model."""

import uuid
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from tests.database import Connection, value

_READ = """
SELECT jsonb_build_object(
    'live', (SELECT jsonb_agg(jsonb_build_array(
        id, state, attempt, lease_id, run_at <= clock_timestamp(), cancel_requested_at IS NOT NULL, losses
    )) FROM pgtasks.tasks),
    'history', (SELECT jsonb_agg(jsonb_build_array(id, status, attempt, lease_id)) FROM pgtasks.history),
    'dead', (SELECT jsonb_agg(jsonb_build_array(id, reason, attempt, lease_id)) FROM pgtasks.dead_letters),
    'attempts', (SELECT jsonb_agg(jsonb_build_array(task_id, attempt, lease_id, outcome)) FROM pgtasks.attempts),
    'leases', (SELECT jsonb_agg(jsonb_build_array(id, worker_id, expires_at < clock_timestamp(), task_ids))
        FROM pgtasks.leases)
)
"""


_EMPTY = """
DELETE FROM pgtasks.tasks; DELETE FROM pgtasks.leases; DELETE FROM pgtasks.history; DELETE FROM pgtasks.attempts;
DELETE FROM pgtasks.dead_letters; DELETE FROM pgtasks.queues; DELETE FROM pgtasks.task_types
"""


class Row(NamedTuple):
    """A live task, as far as the model knows it."""

    state: str
    attempt: int
    lease_id: int | None
    due: bool
    cancel_requested: bool = False
    losses: int = 0

    def __repr__(self) -> str:
        more = "" if self.due else " later"
        more += " cancel" * self.cancel_requested + " lost" * self.losses
        return f"<{self.state}{more} {self.attempt} {self.lease_id}>"


@dataclass
class Tables:
    """What all tables hold."""

    live: dict[int, Row]
    history: dict[int, tuple[str, int, int | None]]
    dead: dict[int, tuple[str, int, int]]
    attempts: Counter[tuple[int, int, int, str]]
    leases: dict[int, tuple[UUID, bool, list[int]]]


def empty(connection: Connection) -> None:
    """Delete every row, in one round trip."""
    connection.execute(_EMPTY.encode())


def read(connection: Connection) -> Tables:
    """Read them in one statement; a task that is twice in one table fails here."""
    found = {name: listed or [] for name, listed in value(connection, _READ).items()}
    tables = Tables(
        live={one: Row(*columns) for one, *columns in found["live"]},
        history={one: (status, attempt, lease) for one, status, attempt, lease in found["history"]},
        dead={one: (reason, attempt, lease) for one, reason, attempt, lease in found["dead"]},
        attempts=Counter((task, attempt, lease, outcome) for task, attempt, lease, outcome in found["attempts"]),
        leases={one: (uuid.UUID(worker), over, sorted(ids)) for one, worker, over, ids in found["leases"]},
    )
    assert len(tables.history) == len(found["history"]), "a task is in history twice"
    return tables
