"""X-02: no text from the database acts on the terminal, in no command."""

import json
import os
import re
import unicodedata
from typing import Any

import pexpect  # type: ignore[import-untyped]  # nobody has written stubs that we depend on
import pytest
from rich.cells import cell_len

from tests.access import role_of
from tests.cli import hostile
from tests.cli.conftest import Run
from tests.database import Connection
from tests.workers import environment, program

# What rich itself sends: colours, and nothing that data could have brought.
OWN_SEQUENCES = re.compile(r"\x1b\[[0-9;]*m")
ALLOWED = {"\n", "\r"}


def acting(text: str) -> set[str]:
    """Return the characters of a text that act on a terminal or hide in it."""
    return {c for c in text if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"} and c not in ALLOWED}


@pytest.fixture
def _hostile_rows(connection: Connection) -> None:
    hostile.insert_everywhere(connection)


@pytest.mark.pg
@pytest.mark.usefixtures("_hostile_rows")
@pytest.mark.parametrize("argv", hostile.COMMANDS, ids=" ".join)
def test_piped_output_has_no_control_characters(pgtasks: Run, argv: tuple[str, ...]) -> None:
    """Not on standard output, and not on standard error."""
    ran = pgtasks(*argv)
    assert ran.code in {0, 3}, ran
    assert acting(ran.out + ran.err) == set()


@pytest.mark.pg
@pytest.mark.usefixtures("_hostile_rows")
@pytest.mark.parametrize("argv", hostile.COMMANDS, ids=" ".join)
def test_json_output_is_valid_and_ascii(pgtasks: Run, argv: tuple[str, ...]) -> None:
    """Every reading command gives one document, whatever is in it."""
    ran = pgtasks(*argv, "--json")
    document = json.loads(ran.out or ran.err)
    assert isinstance(document, dict)
    assert (ran.out + ran.err).isascii()
    assert acting(ran.out + ran.err) == set()


def on_terminal(dsn: str, *argv: str, columns: int = 80, **variables: str) -> tuple[str, int]:
    """Run a command on a terminal and return what it printed there, and its exit code."""
    env = environment(dsn, role_of(argv), TERM="xterm-256color", **variables)
    child: Any = pexpect.spawn(program(), list(argv), env=env, dimensions=(50, columns), encoding="utf-8", timeout=15)
    child.expect(pexpect.EOF)
    child.close()
    return str(child.before), int(child.exitstatus)


@pytest.mark.pg
@pytest.mark.usefixtures("_hostile_rows")
@pytest.mark.parametrize("argv", [("status",), ("tasks", "list"), ("dead", "show", "1")], ids=" ".join)
def test_on_a_terminal_only_our_own_colours_are_sent(dsn: str, argv: tuple[str, ...]) -> None:
    """After taking them out, nothing that acts is left."""
    out, code = on_terminal(dsn, *argv)
    assert code == 0
    assert "\x1b[" in out
    assert acting(OWN_SEQUENCES.sub("", out)) == set()


@pytest.mark.pg
@pytest.mark.usefixtures("_hostile_rows")
@pytest.mark.parametrize("variable", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_color_sends_no_escape_sequence(dsn: str, variable: dict[str, str]) -> None:
    """NO_COLOR, or a terminal that cannot."""
    env = {"TERM": "xterm-256color", **variable}
    assert os.environ.get("NO_COLOR") is None
    child: Any = pexpect.spawn(
        program(), ["status"], env=environment(dsn, "reader", **env), dimensions=(50, 80), encoding="utf-8", timeout=15
    )
    child.expect(pexpect.EOF)
    child.close()
    assert "\x1b" not in child.before


@pytest.mark.pg
@pytest.mark.usefixtures("_hostile_rows")
@pytest.mark.parametrize("argv", [("status",), ("queues", "list")], ids=" ".join)
def test_the_table_stays_aligned(dsn: str, argv: tuple[str, ...]) -> None:
    """Each row fills 80 columns at most, and its numbers end where the heading ends."""
    out, _ = on_terminal(dsn, *argv, NO_COLOR="1")
    lines = out.replace("\r", "").splitlines()
    header = lines[0]
    end_of_column = header.index("running") + len("running")
    rows = lines[2 : 2 + len(hostile.NAMES)]
    assert len(rows) == len(hostile.NAMES)
    for line in rows:
        assert cell_len(line) <= 80
        assert cut_to_cells(line, end_of_column)[-1] == "0", line


def cut_to_cells(line: str, cells: int) -> str:
    """Return the beginning of a line that fills so many cells."""
    end = next(index for index in range(len(line) + 1) if cell_len(line[:index]) >= cells)
    return line[:end]
