"""D-06: parent and forked child enqueue at the same time through one app, and share no connection."""

import subprocess
import sys

import pytest

from tests.database import Connection, rows
from tests.workers import environment

EACH = 1000
FORKING = f"""
import multiprocessing, os, sys
from pgtasks import App
app = App()
# Two free connections, opened before the fork.
with app._client._pools.connection(), app._client._pools.connection():
    pass

def enqueue(name):
    for _ in range({EACH}):
        app.enqueue(name)

if sys.argv[1] == "multiprocessing":
    child = multiprocessing.get_context("fork").Process(target=enqueue, args=("child",))
    child.start()
    enqueue("parent")
    child.join()
    sys.exit(child.exitcode)
pid = os.fork()
if pid == 0:
    enqueue("child")
    os._exit(0)
enqueue("parent")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("way", ["multiprocessing", "os.fork"])
def test_both_sides_of_a_fork_enqueue(way: str, dsn: str, connection: Connection) -> None:
    """A thousand tasks each, at once: all are there, nothing hangs, nothing is on standard error."""
    command = [sys.executable, "-X", "dev", "-c", FORKING, way]
    env = environment(f"{dsn}&sslmode=disable", "producer")
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    found = rows(connection, "SELECT name, count(*) FROM pgtasks.tasks GROUP BY name ORDER BY name")
    assert found == [("child", EACH), ("parent", EACH)]
