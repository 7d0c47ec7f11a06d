"""Rivals say how they are configured, run as what they are, and are named where they cannot run."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bench.database import Bench
from bench.rivals import RIVALS, install, run
from bench.rivals.python import PythonRival
from bench.rivals.rival import SCRIPTS, Command, PostgresRival, Unavailable
from pgtasks import schema
from tests.database import ROOT, Server
from tests.long import LONG

# What every stand-in's worker starts with: it connects, makes noise, and says that it begins.
BEGIN = """
import signal, sys, time, psycopg
from progress import say
tasks = int(sys.argv[2])
print("[] not an event {", '{"event": 3}', sep="\\n")
say("ready")
connection = psycopg.connect(sys.argv[1], autocommit=True)
say("first", at=time.time())
"""
# Half the tasks at once and the others after the last handler, as a rival with a buffer does.
BUFFERED = """
connection.execute("DELETE FROM jobs WHERE id <= %s", (tasks // 2,))
say("last", at=time.time(), tasks=tasks)
time.sleep(0.15)
connection.execute("DELETE FROM jobs")
"""
# Ten tasks, and nothing more until it is told to stop.
SLOW = """
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
connection.execute("DELETE FROM jobs WHERE id <= 10")
signal.sigwait({signal.SIGTERM})
connection.execute("DELETE FROM jobs WHERE id <= 20")
"""
ASKED = """
connection.execute("INSERT INTO jobs SELECT generate_series(1, %s)", (tasks,))
say("last", at=time.time() + 0.5, tasks=tasks)
say("latencies", s=[0.001, 0.002])
time.sleep(60)
"""
FORGETFUL = ASKED.replace("(tasks,)", "(tasks - 1,)")
BROKEN = "sys.exit('no such queue')"
SILENT = "connection.execute('DELETE FROM jobs'); time.sleep(60)"
TASKS = 100


class StandIn(PostgresRival):
    """A queue whose worker does what a test says."""

    name = "stand_in"
    tables = ("jobs",)
    fill_sql = "INSERT INTO jobs (id) SELECT generate_series(1, %s)"
    unfinished_sql = "SELECT EXISTS (SELECT FROM jobs)"
    finished_sql = f"SELECT {TASKS} - count(*) FROM jobs"
    waiting_sql = "SELECT count(*) FROM jobs"

    def __init__(self, *, does: str, says_last: bool = True) -> None:
        super().__init__()
        self._does = does
        self.says_last = says_last  # type: ignore[misc]  # a test's stand-in is made in more than one way

    def install(self) -> None:
        """It is there."""

    def prepare(self, dsn: str) -> None:
        """Make its table."""
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("CREATE TABLE jobs (id bigint)")

    def worker(self, dsn: str, tasks: int) -> Command:
        """Give a script that does what the test says."""
        argv = [sys.executable, "-c", BEGIN + self._does, dsn, str(tasks)]
        return Command(argv, {"PYTHONPATH": str(SCRIPTS)})


class Talented(StandIn):
    """One that can enqueue and show its latency too."""

    def enqueue(self, dsn: str, tasks: int, how: str) -> Command:
        """Say how long it took, by its own clock."""
        assert how == "bulk"
        return self.worker(dsn, tasks)

    def latency(self, dsn: str, tasks: int, every_s: float) -> Command:
        """Say what it saw."""
        assert every_s == 0.01
        return self.worker(dsn, tasks)


@pytest.fixture
def bench(server: Server) -> Any:
    """The tests' server in the role of the measured one."""
    schema.migrate(server.private.dsn)
    with psycopg.connect(server.private.dsn, autocommit=True) as connection:
        yield Bench(server.private, connection)


@pytest.mark.parametrize("name", RIVALS)
def test_a_rival_says_what_it_is_and_how_it_is_configured(name: str) -> None:
    """Its versions are pinned, and its settings have sources."""
    rival = RIVALS[name]
    assert rival.name == name
    assert rival.title
    assert rival.settings.endswith(".")
    assert rival.keeps.endswith(".")
    assert rival.sources
    assert all("==" in package or "@" in package[1:] for package in rival.packages)
    assert rival.folder.parent == ROOT / ".bench"
    if isinstance(rival, PythonRival):
        assert Path(rival.worker("postgresql:///x", 1).argv[1]).is_file()


def test_lines_that_are_no_events_are_passed_over() -> None:
    """A rival's own log on its standard output does no harm, JSON or not."""
    for line in ("", "INFO started", "[1]", "3", "null", '{"event": 3}', '{"level": "info"}', '{"event": "first"'):
        assert run.event_of(line) is None
    assert run.event_of('{"event": "last", "tasks": 3}\n') == {"event": "last", "tasks": 3}


@pytest.mark.pg
def test_a_run_ends_with_the_last_acknowledgement(bench: Bench) -> None:
    """The time counts until nothing is unfinished in the database, not until the last handler."""
    done = run.run(StandIn(does=BUFFERED), bench, TASKS, seconds=20)
    assert (done.tasks, done.tasks_in_all, done.is_whole) == (TASKS, TASKS, True)
    assert 0.15 <= done.seconds < 15
    assert done.rate == TASKS / done.seconds
    assert done.cpu_s > 0
    assert done.wal_bytes is not None
    assert done.wal_bytes > 0
    assert done.commits is not None
    assert done.commits >= 2


@pytest.mark.pg
def test_the_last_question_is_not_in_the_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may walk over all that is dead, which takes as long as it takes."""
    rival = StandIn(does=BUFFERED)
    ask = rival.unfinished

    def slowly(dsn: str) -> bool:
        is_left = ask(dsn)
        time.sleep(0 if is_left else 3)  # it stands for a walk over what is dead
        return is_left

    monkeypatch.setattr(rival, "unfinished", slowly)
    assert run.run(rival, bench, TASKS, seconds=20).seconds < 3


@pytest.mark.pg
def test_a_backlog_that_ran_dry_is_said(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """Unless it was meant to: the rate is then not one of the whole time."""
    run.run(StandIn(does=BUFFERED), bench, TASKS, seconds=20, may_run_dry=True)
    assert not capsys.readouterr().err
    run.run(StandIn(does=BUFFERED), bench, TASKS, seconds=20)
    assert re.search(r"stand_in: its backlog of 100 tasks lasted for \d+\.\d of 20 s only", capsys.readouterr().err)


@pytest.mark.pg
def test_a_store_may_hold_fewer_tasks_than_were_asked_for(bench: Bench) -> None:
    """Then it has done all when it has done those."""

    class Small(StandIn):
        """One that takes a hundred at most."""

        def fill(self, dsn: str, tasks: int) -> int:
            return super().fill(dsn, min(tasks, TASKS))

    done = run.run(Small(does=BUFFERED), bench, 10 * TASKS, seconds=20)
    assert (done.tasks, done.tasks_in_all, done.is_whole) == (TASKS, TASKS, True)


@pytest.mark.pg
def test_nothing_of_ours_is_left_while_a_rival_is_measured(bench: Bench) -> None:
    """An autovacuum of our dead rows would take what is the rival's."""

    def look(_dsn: str) -> contextlib.AbstractContextManager[None]:
        sizes.append(bench.value("SELECT pg_relation_size('pgtasks.tasks') + pg_relation_size('pgtasks.leases')"))
        return contextlib.nullcontext()

    def fill() -> None:
        bench.fill(10)
        assert bench.value("SELECT pg_relation_size('pgtasks.tasks')") > 0

    sizes: list[int] = []
    fill()
    run.run(StandIn(does=BUFFERED), bench, TASKS, 20, look, may_run_dry=True)
    for measure in (
        lambda rival: run.enqueue(rival, bench, TASKS, "bulk"),
        lambda rival: run.latencies_s(rival, bench, TASKS, 0.01),
    ):
        fill()
        measure(Talented(does=ASKED))
        look("")
    assert sizes == [0, 0, 0]


@pytest.mark.pg
def test_a_slow_rival_is_measured_by_what_it_finished_in_its_time(bench: Bench) -> None:
    """The rate is that of its time; the costs are those of all that it finished until it stopped."""
    done = run.run(StandIn(does=SLOW), bench, TASKS, seconds=0.3)
    assert (done.tasks, done.tasks_in_all, done.is_whole) == (10, 20, False)
    assert 0.3 <= done.seconds < 15


@pytest.mark.pg
@pytest.mark.parametrize(
    ("does", "says"),
    [(BROKEN, "no such queue"), ("time.sleep(0.1)", "exited with 0")],
)
def test_a_rival_that_fails_says_why(bench: Bench, does: str, says: str) -> None:
    """What its worker said last is in the error, and no process and no database is left."""
    with pytest.raises(Unavailable, match=says):
        run.run(StandIn(does=does), bench, TASKS, seconds=20)
    found = bench.connection.execute("SELECT count(*) FROM pg_database WHERE datname = 'rival_stand_in'").fetchone()
    assert found == (0,)


@pytest.mark.pg
def test_a_rival_may_leave_out_its_last_handler(bench: Bench) -> None:
    """Then the database alone says when the work is done."""
    done = run.run(StandIn(does=SILENT, says_last=False), bench, TASKS, seconds=10)
    assert done.is_whole
    assert done.seconds < 10


@pytest.mark.pg
def test_what_was_enqueued_has_to_be_there(bench: Bench) -> None:
    """A rate of tasks that the database does not have is none."""
    with pytest.raises(Unavailable, match="99 of 100 tasks wait in its table"):
        run.enqueue(Talented(does=FORGETFUL), bench, TASKS, "bulk")


def test_a_rival_may_enqueue_and_show_its_latency(bench: Bench) -> None:
    """Its rate is by its own clock; what it cannot is said, and what it fails at too."""
    with pytest.raises(NotImplementedError):
        run.enqueue(StandIn(does=ASKED), bench, TASKS, "bulk")
    rival = Talented(does=ASKED)
    assert 0 < run.enqueue(rival, bench, TASKS, "bulk") <= TASKS / 0.5
    assert run.latencies_s(rival, bench, TASKS, 0.01) == [0.001, 0.002]


def test_a_rival_without_its_runtime_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An interpreter that is too old, a program that is not there, an installation that fails."""
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path)
    assert install.python_of((3, 0)) == sys.executable
    with pytest.raises(Unavailable, match=r"Python 3\.99"):
        install.python_of((3, 99))
    with pytest.raises(Unavailable, match="no-such-program does not start"), run.started(Command(["no-such-program"])):
        pytest.fail("started")


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import sys; print('noise'); sys.exit('no route')", "failed: no route$"),
        ("print('no ensurepip'); raise SystemExit(1)", "failed: no ensurepip$"),
        ("raise SystemExit(1)", "failed: it said nothing$"),
    ],
)
def test_an_installation_that_fails_says_why(code: str, says: str) -> None:
    """By what stands on standard error, or else on standard output, as venv does."""
    with pytest.raises(Unavailable, match=says):
        install.checked([sys.executable, "-c", code])
    with pytest.raises(Unavailable, match="proxy"):
        install.checked([sys.executable, "-c", code], is_fetching=True)


def test_an_installation_has_a_limit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Meanwhile it is said that it runs; then it is ended with all that it started, and the command is named."""
    monkeypatch.setattr(install, "SAID_EVERY_S", 0.3)
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    began = time.monotonic()
    with pytest.raises(Unavailable, match=r"`.*time.sleep.*` did not end within 1 s; the network, .* proxy"):
        install.checked([sys.executable, "-c", code], limit_s=1, is_fetching=True)
    assert time.monotonic() - began < 15
    assert f"{Path(sys.executable).name} still runs after" in capsys.readouterr().err
    with pytest.raises(Unavailable, match="no-such-program does not start"):
        install.checked(["no-such-program"])


def test_an_environment_is_made_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A stamp says what is in it; other contents, a half-made one, or one whose Python is gone, are made anew."""
    made: list[list[str]] = []
    python = tmp_path / "python3"

    def make(argv: list[str], *, is_fetching: bool = False) -> None:
        assert is_fetching or "venv" in argv
        made.append(argv)
        python.touch()
        tmp_path.joinpath("env", "bin").mkdir(parents=True, exist_ok=True)
        link = tmp_path / "env" / "bin" / "python"
        link.unlink(missing_ok=True)
        link.symlink_to(python)

    monkeypatch.setattr(install, "checked", make)
    for packages in (["queue==1"], ["queue==1"], ["queue==2"]):
        install.python_environment(tmp_path / "env", packages)
    python.unlink()
    install.python_environment(tmp_path / "env", ["queue==2"])
    assert [argv[-1] for argv in made if "install" in argv] == ["queue==1", "queue==2", "queue==2"]


@LONG
@pytest.mark.pg
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [name for name, rival in RIVALS.items() if isinstance(rival, PythonRival)])
def test_a_real_rival_finishes_every_task(bench: Bench, name: str) -> None:
    """It is installed, runs 2,000 tasks (or what it can in half a minute), and has costs."""
    try:
        RIVALS[name].install()
    except Unavailable as error:
        pytest.skip(str(error))
    done = run.run(RIVALS[name], bench, 2_000, seconds=30)
    assert done.tasks > 0
    assert done.is_whole == (done.tasks == 2_000)
    assert done.cpu_s > 0
    assert all(run.enqueue(RIVALS[name], bench, 200, how) > 0 for how in ("single", "bulk"))
    assert len(run.latencies_s(RIVALS[name], bench, 20, every_s=0.05)) == 20
