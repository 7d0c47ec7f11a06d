"""The lines of several workers, which all write to one place, say whose they are."""

import json

from tests.database import Connection, rows, wait_until
from tests.supervisor.conftest import Supervise


def test_each_line_names_its_worker(supervise: Supervise, connection: Connection) -> None:
    """Also those of its child processes; the supervisor's own are about a worker or about none."""
    supervised = supervise("--log-format=json", app="tests.apps.isolated:app")
    supervised.wait_begun()
    rows(connection, "SELECT pgtasks.enqueue('tells')")
    wait_until(lambda: bool(supervised.said("a line of the shop")), 30, hint=supervised.process.output)
    supervised.process.terminate()
    assert supervised.process.wait() == 0
    lines = [json.loads(line) for line in supervised.process.output().splitlines()]
    workers = {line["worker"] for line in lines if line["event"] == "worker started"}
    assert len(workers) == 2
    for event, count in (("worker stopping", 2), ("worker stopped", 2), ("a line of the shop", 1)):
        said = [line["worker"] for line in lines if line["event"] == event]
        assert len(said) == len(set(said)) == count
        assert set(said) <= workers
    assert "worker" not in next(line for line in lines if line["event"] == "supervisor stopped")
