"""`pgtasks prune`: says what would go, and lets it go."""

import pytest

from tests.cli.conftest import Run, offline
from tests.database import Connection, value
from tests.retention.conftest import AddDay, days, fill

__all__ = ["offline"]
pytestmark = pytest.mark.pg


def test_a_dry_run_says_what_would_go(owner: Connection, fresh_database: str, add_day: AddDay, offline: Run) -> None:
    """And leaves it."""
    old = add_day(9)
    fill(owner, "history", "now() - interval '20 days'", 4)
    ran = offline("prune", "--dry-run", "--dsn", fresh_database)
    assert ran.code == 0
    assert ran.out.startswith(f"{old}: ")
    assert ": an unknown number of rows" in ran.out
    assert "1 partitions and 4 single rows would go" in ran.out
    assert offline("prune", "--dry-run", "--json", "--dsn", fresh_database).json["rows"] == 4
    owner.execute("ANALYZE pgtasks.history")
    (plan,) = offline("prune", "--dry-run", "--json", "--dsn", fresh_database).json["partitions"]
    assert (plan["name"], plan["rows"]) == (old, 10)
    assert days(owner) == {old}


def test_it_lets_go_what_is_old(owner: Connection, fresh_database: str, add_day: AddDay, offline: Run) -> None:
    """All of it, with the counts."""
    add_day(9), add_day(3)
    assert offline("prune", "--json", "--dsn", fresh_database).json == {"partitions": 1, "rows": 0}
    assert offline("prune", "--keep", "36h", "--dsn", fresh_database).out == "1 partitions and 0 single rows are gone\n"
    assert value(owner, "SELECT count(*) FROM pgtasks.history") == 0


@pytest.mark.parametrize("keep", ["5m", "week", "-1d", "0"])
def test_bad_input(fresh_database: str, offline: Run, keep: str) -> None:
    """Exit code 2, and what it takes."""
    ran = offline("prune", f"--keep={keep}", "--dsn", fresh_database)
    assert ran.code == 2
    assert "--keep" in ran.err
