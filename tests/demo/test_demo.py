"""`pgtasks demo` plays for real, says what it saw, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pexpect  # type: ignore[import-untyped]  # it ships no types
import psutil  # type: ignore[import-untyped]  # it ships no types
import psycopg
import pytest

from tests.access import as_role
from tests.database import rows, wait_until
from tests.long import LONG
from tests.workers import environment, program, start

pytestmark = [pytest.mark.pg, pytest.mark.slow, pytest.mark.timeout(90)]


def play(
    *arguments: str, scratch: Path, command: list[str] | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    """Play the demo with temporary files in a folder of its own; it has no terminal."""
    return subprocess.run(
        [*(command or [program(), "demo"]), *arguments],
        env={**environment(), "TMPDIR": str(scratch), **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=80,
        check=False,
    )


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Give an empty folder that the server's account can pass through, as it can through /tmp.

    pytest's own is not, whenever another run of pytest starts meanwhile.
    """
    with tempfile.TemporaryDirectory(prefix="pgtasks-test-demo-") as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


def left_behind(scratch: Path) -> list[str]:
    """Return the processes and files that a demo with this temporary folder has left."""
    alive = []
    for process in psutil.process_iter(["cmdline", "cwd"]):
        line = " ".join([process.info["cwd"] or "", *(process.info["cmdline"] or ())])
        if str(scratch) in line and process.pid != os.getpid():
            alive.append(line)
    return [*alive, *(str(path) for path in scratch.iterdir())]


def test_it_keeps_its_promises(scratch: Path) -> None:
    """It exits with 0, its document has the facts, and nothing stays behind."""
    done = play("--json", scratch=scratch)
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads(done.stdout)
    assert facts["ok"] is True
    assert facts["seconds"] < 60
    assert all(promise["kept"] for promise in facts["promises"])
    assert facts["tasks"] == {"inserted": 107, "rows": 107, "completed": 106, "dead": 1}
    assert facts["failed_attempts"]["worker_lost"] == facts["killed"]["tasks"] > 0
    assert 0 < facts["recovery_s"] < 6
    assert facts["schedule"]["fires"] == facts["schedule"]["tasks"] >= 2
    assert "\033" not in done.stdout + done.stderr
    assert left_behind(scratch) == []


def test_it_fits_a_terminal_of_80_columns_without_colours(scratch: Path) -> None:
    """A live table stays below the text; NO_COLOR leaves nothing but its movements."""
    env = environment(TMPDIR=str(scratch), NO_COLOR="1", TERM="xterm-256color")
    terminal = pexpect.spawn(program(), ["demo"], env=env, dimensions=(50, 80), timeout=60, encoding="utf-8")
    terminal.expect(pexpect.EOF)
    terminal.close()
    shown = str(terminal.before)
    assert terminal.exitstatus == 0, shown
    assert "9 of 9 promises kept" in shown
    assert re.search(r"demo\.render_video .* 4 ", shown), "the table was not shown"
    assert not re.search(r"\x1b\[[0-9;]*m", shown), "colours in spite of NO_COLOR"
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in re.split(r"[\r\n]+", shown)]
    assert max(len(line) for line in lines) <= 80


@LONG
def test_a_broken_promise_ends_in_exit_code_1(scratch: Path) -> None:
    """A recovery that is slower than promised is a cross, and the command fails."""
    code = (
        "from pgtasks.cli import main; from pgtasks.cli.demo import promises; promises.RECOVERY_S_MAX = 0.001; main()"
    )
    done = play("demo", scratch=scratch, command=[sys.executable, "-c", code])
    assert done.returncode == 1, done.stderr
    assert "8 of 9 promises kept" in done.stdout
    assert done.stdout.count("✗") == 1
    assert "last words of worker" in done.stdout
    assert left_behind(scratch) == []


def test_it_plays_in_a_database_of_ones_own(fresh_database: str, scratch: Path) -> None:
    """With --dsn it clears the queue of its own afterwards, beside whatever else is there."""
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        rows(connection, "INSERT INTO pgtasks.tasks (name) VALUES ('demo.send_email'), ('somebody.elses')")
        done = play("--dsn", as_role(fresh_database, "owner"), scratch=scratch)
        assert done.returncode == 0, done.stdout + done.stderr
        counted = rows(connection, "SELECT queue, count(*) FROM pgtasks.all_tasks GROUP BY queue")
        assert counted == [("default", 2)]
        assert rows(connection, "SELECT count(*) FROM pgtasks.schedules") == [(0,)]
        assert rows(connection, "SELECT count(*) FROM pgtasks.schedule_fires") == [(0,)]
        for table in ("attempts", "workers", "dead_letters"):
            assert rows(connection, f"SELECT count(*) FROM pgtasks.{table}") == [(0,)], table
    assert re.search(r"Its tasks, in the queue demo-\w+, are deleted", done.stdout)


def test_it_clears_a_database_of_ones_own_when_it_is_interrupted(
    fresh_database: str, scratch: Path, tmp_path: Path
) -> None:
    """Tasks that nobody will ever run would be warned about for ever."""
    output = tmp_path / "output"
    with output.open("wb") as log:
        argv = [program(), "demo", "--dsn", as_role(fresh_database, "owner")]
        process = start(argv, environment(TMPDIR=str(scratch)), log.fileno())
    try:
        wait_until(lambda: "kill -9" in output.read_text(), 60, hint=output.read_text)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
    finally:
        process.kill()
        process.wait()
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        assert rows(connection, "SELECT count(*) FROM pgtasks.all_tasks") == [(0,)]
        assert rows(connection, "SELECT count(*) FROM pgtasks.workers") == [(0,)]
        assert rows(connection, "SELECT count(*) FROM pgtasks.leases") == [(0,)]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_whatever_ends_it_ends_its_processes(number: signal.Signals, code: int, scratch: Path, tmp_path: Path) -> None:
    """Ctrl-C and SIGTERM clean up everything; after SIGKILL the server and the workers still end."""
    output = tmp_path / "output"
    with output.open("wb") as log:
        process = start([program(), "demo"], environment(TMPDIR=str(scratch)), log.fileno())
    try:
        wait_until(lambda: "psql says" in output.read_text(), 40, hint=output.read_text)
        process.send_signal(number)
        assert process.wait(20) == code
    finally:
        process.kill()
        process.wait()
    if number is signal.SIGKILL:
        wait_until(lambda: left_behind(scratch) == [str(path) for path in scratch.iterdir()], 20)
    else:
        wait_until(lambda: left_behind(scratch) == [], 10, hint=lambda: str(left_behind(scratch)))
        assert "Traceback" not in output.read_text()


def test_without_a_local_server_it_says_what_to_do(scratch: Path) -> None:
    """A database that PGTASKS_DSN names is not played in unasked."""
    code = "from pgtasks import embedded; embedded.is_available = lambda: False; from pgtasks.cli import main; main()"
    done = play("demo", scratch=scratch, command=[sys.executable, "-c", code], PGTASKS_DSN="postgresql:///mine")
    assert done.returncode == 2
    assert "--dsn" in done.stderr
    assert "pgtasks[embedded]" in done.stderr
