"""A worker tells the database which limits it has, once, so that others can say what a task waits for."""

import pytest

from pgtasks import App
from pgtasks.engine.children import ChildOptions
from pgtasks.engine.worker import Worker
from pgtasks.settings import QueueSlots, WorkerSettings
from pgtasks.store import statements
from pgtasks.store.session import connect, fetch_all
from tests.database import Connection, rows

pytestmark = pytest.mark.pg
LIMITS = "SELECT queues, queue_slots, children, isolated FROM pgtasks.workers"


async def test_a_worker_tells_its_limits(dsn: str, connection: Connection) -> None:
    """Slots of each queue, child processes, and which tasks need one."""
    app = App(dsn=dsn)

    @app.task(executor="process")
    def heavy() -> None:
        """Run in a child."""

    @app.task
    def light() -> None:
        """Run here."""

    settings = WorkerSettings(queues=(QueueSlots("mails", 2), QueueSlots("default")))
    worker = Worker(app, settings, children=ChildOptions(command=("true",), children=3))
    with connect(dsn, "heartbeat") as ours:
        fetch_all(ours, statements.register(worker.info))
    assert rows(connection, LIMITS) == [(["mails", "default"], [2, None], 3, [heavy.name])]
    await worker.close()
