"""`pgtasks top` on a real terminal."""

import re
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pexpect  # type: ignore[import-untyped]  # nobody has written stubs that we depend on
import psutil  # type: ignore[import-untyped]  # nobody has written stubs that we depend on
import pytest
from typer.testing import CliRunner

from pgtasks import cli
from tests.database import Connection, Server, rows, value
from tests.top.test_looking import running
from tests.workers import environment, program

pytestmark = pytest.mark.pg

TELL = 'echo "code=$?"; if [ "$(stty -g)" = "$before" ]; then echo put back; else echo CHANGED; fi'
SHELL = f'trap : INT; before=$(stty -g); "$0" top 0.2; {TELL}'
# Only with job control there is somebody who could continue a stopped program.
SHELL_WITH_JOBS = f'set -m; before=$(stty -g); "$0" top 0.2; {TELL}; fg >/dev/null; {TELL}'
ENTER, LEAVE = re.escape("\x1b[?1049h"), re.escape("\x1b[?1049l")


@pytest.fixture
def shell(dsn: str) -> Iterator[Callable[[str], Any]]:
    """Start a shell with a script in which $0 is our program; in the end it is killed."""
    started = []
    env = environment(dsn, "admin", TERM="xterm-256color")

    def start(script: str) -> Any:
        argv = ["-c", script, program()]
        started.append(pexpect.spawn("/bin/sh", argv, env=env, dimensions=(24, 80), encoding="utf-8", timeout=15))
        return started[-1]

    yield start
    for child in started:
        child.close(force=True)


def expect_left(top: Any, code: int) -> None:
    """Wait until the shell is back, with this exit code and the terminal as it was."""
    top.expect(LEAVE)
    top.expect(f"code={code}")
    assert "Traceback" not in top.before
    top.expect("put back")


def test_somebody_watches_pauses_and_cancels(shell: Callable[[str], Any], connection: Connection) -> None:
    """A running task is seen and cancelled, its queue paused and resumed."""
    top = shell(SHELL)
    task_id, _ = running(connection, "mails", "slow_mail", "other")
    top.expect(ENTER)
    top.expect("slow_mail")
    top.send("p")
    top.expect("queue mails is paused")
    top.expect(r"\(paused\)")
    assert rows(connection, "SELECT name FROM pgtasks.queues WHERE paused_at IS NOT NULL") == [("mails",)]
    top.send("\tp")
    top.expect("queue mails goes on")
    # Pasted in one piece, the y is no answer to a question that nobody has seen yet.
    top.send("cy")
    top.expect(f"cancel task {task_id}, slow_mail")
    assert value(connection, "SELECT cancel_requested_at FROM pgtasks.tasks WHERE id = %s", task_id) is None
    top.send("y")
    top.expect(f"task {task_id}: is running; its worker is told to stop it")
    top.expect(r"\(stopping\)")
    assert value(connection, "SELECT cancel_requested_at FROM pgtasks.tasks WHERE id = %s", task_id) is not None
    top.send("q")
    expect_left(top, 0)


def test_it_can_be_stopped_continued_resized_and_ended(shell: Callable[[str], Any]) -> None:
    """The shell gets its terminal back each time."""
    top = shell(SHELL_WITH_JOBS)
    top.expect("no queues yet")
    top.sendcontrol("z")
    expect_left(top, 128 + signal.SIGTSTP)
    top.expect(ENTER)
    top.setwinsize(10, 60)
    top.expect(r"\n {60}\r\n")
    (program_,) = psutil.Process(top.pid).children()
    program_.terminate()
    expect_left(top, 128 + signal.SIGTERM)


def test_a_lost_database_is_said_and_asked_again(
    shell: Callable[[str], Any], dsn: str, server: Server, connection: Connection
) -> None:
    """Ctrl-C is an end as well."""
    top = shell(SHELL)
    top.expect("no queues yet")
    server.alter(dsn, "ALLOW_CONNECTIONS false")
    try:
        rows(
            connection,
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = 'pgtasks/cli'",
        )
        top.expect("trying again")
    finally:
        server.alter(dsn, "ALLOW_CONNECTIONS true")
    connection.execute("INSERT INTO pgtasks.tasks (name, queue) VALUES ('a', 'back-again')")
    top.expect("back-again")
    top.sendintr()
    expect_left(top, 130)


def test_without_a_terminal_it_names_what_to_use_instead() -> None:
    """Exit code 2."""
    ran = CliRunner().invoke(cli.app, ["top"])
    assert ran.exit_code == 2
    assert "status --watch" in ran.stderr
    assert "status --json" in ran.stderr
    assert CliRunner().invoke(cli.app, ["top", "0.01"]).exit_code == 2
