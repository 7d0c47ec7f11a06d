"""The command line, for what the documentation shows of it."""

from tests.cli.conftest import offline, pgtasks

__all__ = ["offline", "pgtasks"]
