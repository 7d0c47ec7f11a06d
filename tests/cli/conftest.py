"""Running commands in this process, with what they printed and their exit code."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from typer.testing import CliRunner

from pgtasks import cli


@dataclass(frozen=True)
class Ran:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document that it printed."""
        return json.loads(self.out)


Run = Callable[..., Ran]


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command that needs no database, or names one itself."""
    monkeypatch.delenv("PGTASKS_DSN", raising=False)

    def run(*argv: str, stdin: str | None = None) -> Ran:
        result = CliRunner().invoke(cli.app, list(argv), input=stdin)
        return Ran(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def pgtasks(offline: Run, dsn: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command on the test database; the worker's variables are gone after the test."""
    monkeypatch.setenv("PGTASKS_DSN", dsn)
    return offline
