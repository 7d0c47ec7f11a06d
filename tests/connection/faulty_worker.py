"""A worker whose statements fail on order: `python -m tests.connection.faulty_worker FILE worker APP …`.

The file holds lines `LOOP SQLSTATE COUNT`; each statement of that loop takes one of its count and fails
with the state, as if the server had said so. Statements are told apart by their text.
"""

import fcntl
import sys
from pathlib import Path
from typing import Any

import psycopg

from pgtasks import cli
from pgtasks.engine import maintenance
from pgtasks.store import link, listening, session
from pgtasks.store.sql_files import sql

STATEMENTS = {
    "claim": ("tasks_claim", "tasks_follow", "tasks_rescan", "tasks_new_lanes", "tasks_due"),
    "finish": ("tasks_complete",),
    "heartbeat": ("workers_beat",),
    "listen": ("bells_arm", "bells_release"),
    "schedule": ("schedules_due",),
    "sweep": ("leases_sweep",),
    "tidy": ("workers_prune",),
}


def order(path: Path, loop: str, state: str, count: int) -> None:
    """Let the next statements of a loop fail."""
    path.write_text(f"{loop} {state} {count}", encoding="utf-8")


def left(path: Path) -> int:
    """Say how many of them have not been run yet."""
    return int(path.read_text(encoding="utf-8").split()[2])


def taken(path: Path, loops: list[str]) -> str | None:
    """Take one fault of the order, if it is for one of these loops; gives its state."""
    with path.open("r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        loop, state, count = file.read().split()
        if loop not in loops or count == "0":
            return None
        file.seek(0)
        file.write(f"{loop} {state} {int(count) - 1}")
        file.truncate()
        return state


def main(path: Path) -> None:
    """Patch the store's only way to run a statement, then run the program."""
    texts = {name: [sql(file) for file in files] for name, files in STATEMENTS.items()}
    real = session.afetch_all

    async def afetch_all(connection: Any, statement: Any) -> Any:
        loops = [name for name, found in texts.items() if statement.sql in found]
        state = taken(path, loops)
        if state is not None:
            raise session.translate(psycopg.errors.lookup(state)(f"a fault as ordered for {loops[0]}"))
        return await real(connection, statement)

    maintenance.TIDY_S = 0.5
    for module in (session, link, listening):
        module.afetch_all = afetch_all  # type: ignore[attr-defined]  # a fault is planted, on purpose
    cli.main()


if __name__ == "__main__":
    where = Path(sys.argv.pop(1))
    main(where)
