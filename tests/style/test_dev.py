"""`./dev` greets a newcomer, whatever is or is not installed."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.style.checkout import ROOT


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """Return the path of a `dev` in a folder where nothing was ever installed."""
    for file in ("dev", "pyproject.toml"):
        shutil.copy(ROOT / file, tmp_path)
    return tmp_path / "dev"


def run(dev: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `dev` as a newcomer does, from another folder."""
    command = [sys.executable, str(dev), *arguments]
    return subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)


def test_an_old_python_can_read_it() -> None:
    """It has to start in order to say that the Python is too old."""
    ast.parse((ROOT / "dev").read_text(encoding="utf-8"), feature_version=(3, 7))


def test_without_a_command_it_lists_them(bare: Path) -> None:
    """Each command has one line, and nothing is installed for that."""
    listed = run(bare)
    assert listed.returncode == 0
    lines = [line.split()[0] for line in listed.stdout.splitlines() if line.startswith("  ")]
    assert lines == ["demo", "test", "check", "fix", "bench", "chaos", "cron-oracle", "setup"]
    assert not (bare.parent / ".venv").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tset"], "did you mean test?"),
        (["frobnicate"], "./dev lists the commands"),
        (["test", "--pg", "14"], "invalid choice: '14'"),
        (["test", "--pg"], "expected one argument"),
        (["check", "everything"], "takes no arguments"),
    ],
)
def test_a_wrong_command_line_is_a_usage_error(bare: Path, arguments: list[str], message: str) -> None:
    """The message says what would be right."""
    refused = run(bare, *arguments)
    assert refused.returncode == 2
    assert message in refused.stderr
    assert not (bare.parent / ".venv").exists()
