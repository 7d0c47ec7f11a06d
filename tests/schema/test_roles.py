"""docs/roles.md gives each role what it needs and no more (X-01)."""

import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pgtasks import App
from tests.database import Connection, value, wait_until
from tests.workers import WorkerProcess

PAGE = Path(__file__).parents[2] / "docs" / "roles.md"
ROLES = ("producer", "worker", "reader", "operator")
ADD = "SELECT pgtasks.enqueue('add', '{\"a\": 1, \"b\": 2}')"


@pytest.fixture
def roles(dsn: str, connection: Connection) -> Iterator[dict[str, str]]:
    """A login role of each kind, with the grants of the page, and how it connects."""
    made = {role: f"pgtasks_test_{role}" for role in ROLES}
    for name in made.values():
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
    for block in re.findall(r"```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        connection.execute(re.sub(r"\bTO (\w+);", lambda found: f"TO {made[found[1]]};", block).encode())
    connection.execute(
        sql.SQL("GRANT {} TO {}").format(sql.Identifier(made["reader"]), sql.Identifier(made["operator"]))
    )
    try:
        yield {role: make_conninfo(dsn, user=name) for role, name in made.items()}
    finally:
        for name in reversed(made.values()):
            connection.execute(sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(sql.Identifier(name)))


def _allowed(dsn: str, statement: str) -> bool:
    with psycopg.connect(dsn) as session:
        try:
            session.execute(statement.encode())
        except psycopg.errors.InsufficientPrivilege:
            return False
        finally:
            session.rollback()
    return True


@pytest.mark.parametrize(
    ("statement", "who"),
    [
        (ADD, {"producer", "worker"}),
        ('SELECT * FROM pgtasks.enqueue_many(\'[{"name": "add"}]\')', {"producer", "worker"}),
        ("INSERT INTO pgtasks.tasks (name) VALUES ('add')", {"producer", "worker"}),
        ("INSERT INTO pgtasks.tasks (name, state, lease_id, claimed_at) VALUES ('a', 'running', 9, now())", {"worker"}),
        ("SELECT payload FROM pgtasks.tasks", {"worker", "reader", "operator"}),
        ("SELECT * FROM pgtasks.all_tasks", {"worker", "reader", "operator"}),
        ("SELECT pgtasks.cancel(1)", {"worker", "operator"}),
        ("SELECT pgtasks.pause('q')", {"worker", "operator"}),
        ("UPDATE pgtasks.tasks SET priority = 1", {"worker"}),
        ("DELETE FROM pgtasks.tasks", {"worker"}),
        ("TRUNCATE pgtasks.tasks", set()),
        ("ALTER TABLE pgtasks.tasks DISABLE TRIGGER tasks_inserted", set()),
        ("CREATE TABLE pgtasks.mine ()", set()),
        ("DROP TABLE pgtasks.queues", set()),
    ],
)
def test_who_may_do_what(roles: dict[str, str], statement: str, who: set[str]) -> None:
    """Everything else ends in 42501."""
    assert {role for role, dsn in roles.items() if _allowed(dsn, statement)} == who


def test_a_task_goes_its_way_through_roles_alone(roles: dict[str, str], connection: Connection) -> None:
    """Added from SQL and from Python, run, failed and swept by a worker that owns nothing."""
    with psycopg.connect(roles["producer"]) as producer:
        producer.execute(ADD.encode())
    app = App(roles["producer"])
    app.enqueue("fail_for_good")
    task = app.task(name="echo")(lambda **payload: payload)
    assert app.enqueue_many(task.prepare(n=n) for n in range(20)).created == 20
    app.close()
    connection.execute(
        "WITH lease AS (INSERT INTO pgtasks.leases (worker_id, expires_at, task_ids) SELECT gen_random_uuid(), now(), "
        "array_agg(id) FROM pgtasks.tasks WHERE name = 'fail_for_good' RETURNING id) "
        "UPDATE pgtasks.tasks SET state = 'running', claimed_at = now(), attempt = 1, lease_id = lease.id FROM lease "
        "WHERE name = 'fail_for_good'"
    )
    with WorkerProcess("tests.apps.basic:app", roles["worker"], "--lease", "1", "--sweep-interval", "0.2") as worker:
        worker.wait_ready()
        wait_until(lambda: value(connection, "SELECT count(*) FROM pgtasks.tasks") == 0, 15, hint=worker.output)
        worker.terminate()
        assert worker.wait() == 0, worker.output()
    assert value(connection, "SELECT count(*) FROM pgtasks.history WHERE status = 'completed'") == 21
    assert value(connection, "SELECT count(*) FROM pgtasks.dead_letters") == 1
