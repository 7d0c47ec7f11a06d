"""`pgtasks db`: what a person or a script gets from it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from pgtasks import embedded
from tests.embedded.conftest import copy_state
from tests.embedded.processes import ROOT

PGTASKS = [sys.executable, "-c", "from pgtasks.cli import main; main()", "db"]


@pytest.fixture
def state_dir(new_state_dir: Path, packaged_state_dir: Path) -> Path:
    """A state folder for the programs of the wheel, whichever the other tests use."""
    copy_state(packaged_state_dir, new_state_dir)
    return new_state_dir


@pytest.fixture(autouse=True)
def local_server(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command use a folder of the test's own, and nothing from outside."""
    for name in [name for name in os.environ if name.startswith("PG")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PGTASKS_EMBEDDED_DIR", str(state_dir))


def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run `pgtasks db` and return what it printed and its exit status."""
    return subprocess.run([*PGTASKS, *arguments], input=stdin, capture_output=True, text=True, cwd=ROOT, check=False)


def test_url_prints_an_address_that_works_afterwards(state_dir: Path) -> None:
    """The command has ended, and the server is still there for whoever reads the address."""
    done = run("url")
    assert (done.returncode, done.stderr) == (0, "")
    with psycopg.connect(done.stdout.strip()) as connection:
        assert connection.execute("SELECT current_database()").fetchone() == ("pgtasks",)
    facts = json.loads(run("url", "--json").stdout)
    assert facts["dsn"] == done.stdout.strip()
    assert (facts["embedded"], facts["path"]) == (True, str(state_dir))
    assert json.loads(run("path", "--json").stdout) == {"path": str(state_dir), "running": True}


@pytest.mark.parametrize(
    ("arguments", "stdin", "expected"),
    [
        (["-Atc", "SELECT 'a  b', current_user"], "", "a  b|postgres\n"),
        (["-qAt", "-c", "SELECT 1", "-c", "SELECT 2"], "", "1\n2\n"),
        (["-At", "-v", "it=x"], "SELECT :'it';", "x\n"),
        (["postgres", "-Atc", "SELECT current_database()"], "", "postgres\n"),
        (["-At", "-c", "SELECT '--help', '$HOME', '\\'"], "", "--help|$HOME|\\\n"),
    ],
)
def test_psql_gets_its_arguments_as_they_are(arguments: list[str], stdin: str, expected: str) -> None:
    """And the variables that would lead psql elsewhere are not among its environment."""
    done = run("psql", *arguments, stdin=stdin)
    assert (done.returncode, done.stdout) == (0, expected), done.stderr


def test_psql_runs_a_file(tmp_path: Path) -> None:
    """Statement by statement, with psql's own commands."""
    (tmp_path / "script.sql").write_text("\\set x 42\nSELECT :x;\n")
    assert run("psql", "-At", "-f", str(tmp_path / "script.sql")).stdout == "42\n"


def test_psql_gives_its_exit_status(monkeypatch: pytest.MonkeyPatch) -> None:
    """1 for a failed statement, 3 for a failed script, and its message on standard error."""
    monkeypatch.setenv("PGHOSTADDR", "192.0.2.1")
    failed = run("psql", "-c", "SELECT 1/0")
    assert failed.returncode == 1
    assert "division by zero" in failed.stderr
    assert run("psql", "-v", "ON_ERROR_STOP=1", stdin="boom;").returncode == 3


def test_psql_holds_the_server_for_as_long_as_it_runs(state_dir: Path) -> None:
    """The lease goes over to psql, even before that has connected."""
    command = [*PGTASKS, "psql", "-Atq"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as psql:
        assert psql.stdin is not None
        assert psql.stdout is not None
        psql.stdin.write("SELECT 'connected';\n\\c -\nSELECT 'again';\n")
        psql.stdin.flush()
        assert psql.stdout.readline() == "connected\n"
        assert psql.stdout.readline() == "again\n"
        with pytest.raises(embedded.ServerBusyError, match="by another program"):
            embedded.stop_server(state_dir)
        psql.communicate("\\q\n")
    assert psql.returncode == 0


def test_stop_stops_refuses_and_says_when_there_is_nothing_to_stop(state_dir: Path) -> None:
    """Exit status 1 means that somebody uses the server."""
    assert run("stop").stdout == "No local server is running.\n"
    with embedded.open_server(state_dir):
        refused = run("stop")
        assert refused.returncode == 1
        assert "in use by another program" in refused.stderr
        assert "--force" in refused.stderr
        assert run("stop", "--force").stdout == "The local server is stopped.\n"
    run("url")
    assert run("stop").returncode == 0
    assert not embedded.is_running(state_dir)


def test_path_prints_the_folder_and_starts_nothing(state_dir: Path) -> None:
    """It works without a server and without its programs."""
    assert run("path").stdout == f"{state_dir}\n"
    assert json.loads(run("path", "--json").stdout)["running"] is False


def test_with_a_dsn_the_password_is_shown_only_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in text nor in JSON."""
    dsn = "postgresql://app:geheim@db.example/tasks"
    monkeypatch.setenv("PGTASKS_DSN", dsn)
    assert "geheim" not in run("url").stdout
    assert "db.example" in run("url").stdout
    facts = json.loads(run("url", "--json").stdout)
    assert facts["embedded"] is False
    assert "geheim" not in facts["dsn"]
    assert run("url", "--show-password").stdout.strip() == dsn


@pytest.mark.parametrize("command", ["stop", "path"])
def test_with_a_dsn_there_is_no_local_server_to_speak_of(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says whose database it is, without the password."""
    monkeypatch.setenv("PGTASKS_DSN", "postgresql://app:geheim@db.example/tasks")
    done = run(command)
    assert done.returncode == 2
    assert "PGTASKS_DSN is set" in done.stderr
    assert "geheim" not in done.stdout + done.stderr


def test_psql_goes_to_the_dsn_without_showing_the_password(
    bindir: Path | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over TCP, because there a password is asked for; `ps` must not show it."""
    with embedded.PrivateServer(bindir=bindir, options=embedded.FAST_OPTIONS, tcp=True) as server:
        dsn = server.tcp_dsn_for("postgres")
        monkeypatch.setenv("PGTASKS_DSN", dsn)
        done = run("psql", "-Atc", "SELECT inet_server_port()")
        assert done.stdout == f"{server.port}\n", done.stderr
        shown = run("psql", "-Atc", "\\! tr '\\0' ' ' < /proc/$PPID/cmdline")
        assert "dbname='postgres'" in shown.stdout
        password = dsn.split(":")[2].split("@")[0]
        assert password not in shown.stdout


def test_a_malformed_dsn_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not repeated, because it may hold a password."""
    monkeypatch.setenv("PGTASKS_DSN", "postgresql://app:ge%zzheim@db")
    for command in ("url", "psql", "stop"):
        done = run(command)
        assert done.returncode == 2
        assert "heim" not in done.stdout + done.stderr


def test_a_folder_that_cannot_be_used_is_one_clear_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit status 4, as for every database that cannot be reached, and no traceback."""
    monkeypatch.setenv("PGTASKS_EMBEDDED_DIR", "/dev/null/state")
    done = run("url")
    assert done.returncode == 4
    assert "PGTASKS_EMBEDDED_DIR" in done.stderr
    assert "Traceback" not in done.stderr
