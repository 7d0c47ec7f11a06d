"""A signal while a worker turns into a new one is heeded, by the old one or by the new one."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.handlers.conftest import Tasks
from tests.stuck.conftest import APP
from tests.workers import WorkerProcess, environment

# A program with a thread that does not end, whose new life says so. A signal comes just before it.
PROGRAM = """
import os, signal, sys, threading
from pgtasks.cli.worker import end_on_signals
from pgtasks.engine.rebirth import SIGNALS, Rebirth

if "REBORN" in os.environ:
    end_on_signals()
    print("reborn", flush=True)
    Rebirth.ready()
    sys.exit(0)
if {thread}:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
end_on_signals()
rebirth, start = Rebirth({{**os.environ, "REBORN": "1"}}), os.execve

def late(*command):
    os.kill(os.getpid(), signal.SIGTERM)
    start(*command)

os.execve = late
rebirth.again()
print("not reborn", all(signal.getsignal(number) for number in SIGNALS))
"""


def outcome(program: str) -> tuple[int, str]:
    """Run a program and return how it ended and what it printed."""
    ended = subprocess.run([sys.executable, "-c", program], env=environment(), capture_output=True, check=False)
    return ended.returncode, ended.stdout.decode()


def test_a_signal_that_a_stuck_thread_gets_ends_the_process() -> None:
    """The thread does not block it, so the new program would never hear of it."""
    assert outcome(PROGRAM.format(thread=True)) == (-signal.SIGTERM, "")


def test_without_other_threads_the_new_program_gets_the_signal() -> None:
    """It waits until then."""
    code, printed = outcome(PROGRAM.format(thread=False))
    assert (code, printed) == (0, "reborn\n")


def test_a_process_that_cannot_start_again_heeds_signals_as_before(tmp_path: Path) -> None:
    """The folder in which it was started is gone."""
    program = f"""
import os, signal
from pgtasks.cli.worker import end_on_signals, leave
from pgtasks.engine.rebirth import Rebirth
os.mkdir({str(tmp_path / "gone")!r})
os.chdir({str(tmp_path / "gone")!r})
end_on_signals()
rebirth = Rebirth(os.environ)
rebirth._command[0] = "/nowhere/python"
rebirth.again()
assert signal.getsignal(signal.SIGTERM) is leave
assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())
print("as before")
"""
    assert outcome(program) == (0, "as before\n")


@pytest.mark.parametrize("part", ["app", "loop"])
def test_a_signal_while_the_old_worker_closes_ends_it(tasks: Tasks, part: str) -> None:
    """Exit 0 at once, whatever threads there are; it does not start again."""
    env = {"PGTASKS_TEST_IMPATIENT": "1", "PGTASKS_TEST_SLOW_END": part}
    with WorkerProcess(APP, tasks.dsn, "--stuck-max", "1", env=env) as worker:
        tasks.add("never_ends", max_attempts=1)
        worker.wait_output("closes slowly", 20)
        worker.terminate()
        assert worker.wait() == 0, worker.output()
        assert worker.output().count("worker started") == 1
