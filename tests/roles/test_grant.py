"""`pgtasks grant` gives each kind of role what it needs and no more (X-01); nobody here is a superuser."""

import psycopg
import pytest

from pgtasks import App
from pgtasks.metrics.facts import DatabaseReader
from pgtasks.store import granting
from tests.cli.conftest import Run, offline
from tests.database import ROOT, Connection, rows, value, wait_until
from tests.roles.conftest import Roles
from tests.workers import WorkerProcess

__all__ = ["offline"]
pytestmark = pytest.mark.pg

ADD = "SELECT pgtasks.enqueue('add', '{\"a\": 1, \"b\": 2}')"
ALL = {"owner", "producer", "worker", "reader", "admin"}
SCHEDULE = "INSERT INTO pgtasks.schedules (name, expression, task) VALUES ('s', '@daily', 'add')"
DEAD = (
    "INSERT INTO pgtasks.dead_letters (id, created_at, run_at, attempt, priority, reason, queue, name, payload)"
    " VALUES (1, now(), now(), 1, 0, 'permanent', 'default', 'add', '{}')"
)
# Stands for the name of a partition that was made after the grants.
LATER = "pgtasks.later"


def allowed(dsn: str, statement: str) -> bool:
    """Tell whether a role may run a statement, which is rolled back."""
    with psycopg.connect(dsn) as session:
        if LATER in statement:
            ((name,),) = session.execute("SELECT max(relname) FROM pg_class WHERE relname ~ '^history_[0-9]{8}$'")
            statement = statement.replace(LATER, f"pgtasks.{name}")
        try:
            session.execute(statement.encode())
        except psycopg.errors.InsufficientPrivilege:
            return False
        except psycopg.errors.IntegrityError:
            return True  # it got as far as the row
        finally:
            session.rollback()
    return True


@pytest.mark.parametrize(
    ("statement", "who"),
    [
        (ADD, {"owner", "producer", "worker", "admin"}),
        ('SELECT * FROM pgtasks.enqueue_many(\'[{"name": "add"}]\')', {"owner", "producer", "worker", "admin"}),
        ("INSERT INTO pgtasks.tasks (name) VALUES ('add') RETURNING id", {"owner", "producer", "worker", "admin"}),
        ("INSERT INTO pgtasks.tasks (name, state, lease_id, claimed_at) VALUES ('a', 'running', 9, now())",
         {"owner", "worker", "admin"}),
        ("INSERT INTO pgtasks.tasks (name, attempt) VALUES ('a', 7)", {"owner", "worker", "admin"}),
        ("SELECT id FROM pgtasks.tasks", ALL),
        ("SELECT payload FROM pgtasks.tasks", ALL - {"producer"}),
        ("SELECT * FROM pgtasks.all_tasks", ALL - {"producer"}),
        ("SELECT result FROM pgtasks.history", ALL - {"producer"}),
        ("SELECT pgtasks.cancel(1)", {"owner", "admin"}),
        ("SELECT pgtasks.retry(1)", {"owner", "admin"}),
        ("SELECT pgtasks.pause('q')", {"owner", "admin"}),
        ("SELECT pgtasks.resume('q')", {"owner", "admin"}),
        ("SELECT pgtasks.backlog('q')", {"owner", "reader", "admin"}),
        ("SELECT pgtasks.create_partitions()", {"owner", "worker", "admin"}),
        ("UPDATE pgtasks.tasks SET priority = 1", {"owner", "worker", "admin"}),
        ("DELETE FROM pgtasks.tasks", {"owner", "worker", "admin"}),
        ("UPDATE pgtasks.leases SET expires_at = now()", {"owner", "worker"}),
        ("DELETE FROM pgtasks.history", {"owner", "admin"}),
        ("SELECT pgtasks.prune('7 days')", {"owner", "worker", "admin"}),
        (f"SELECT * FROM {LATER}", ALL - {"producer"}),
        (f"INSERT INTO {LATER} DEFAULT VALUES", {"owner"}),
        (f"UPDATE {LATER} SET name = 'a'", {"owner"}),
        (f"DELETE FROM {LATER}", {"owner"}),
        (DEAD, {"owner", "worker", "admin"}),
        ("DELETE FROM pgtasks.dead_letters", {"owner", "admin"}),
        (SCHEDULE, {"owner", "worker", "admin"}),
        ("UPDATE pgtasks.queues SET paused_at = now()", {"owner", "admin"}),
        ("UPDATE pgtasks.schema_version SET version_num = '9999'", {"owner"}),
        ("TRUNCATE pgtasks.tasks", {"owner"}),
        ("ALTER TABLE pgtasks.tasks DISABLE TRIGGER tasks_inserted", {"owner"}),
        ("CREATE TABLE pgtasks.mine ()", {"owner"}),
        ("ALTER TABLE pgtasks.queues ADD COLUMN mine integer", {"owner"}),
        ("SELECT setval('pgtasks.tasks_id_seq', 1)", {"owner"}),
    ],
)  # fmt: skip
def test_who_may_do_what(roles: Roles, statement: str, who: set[str]) -> None:
    """Everything else ends in 42501; a role without grants may do nothing at all."""
    assert {kind for kind in (*ALL, "stranger") if allowed(roles[kind], statement)} == who


def test_a_producer_can_enqueue_and_nothing_else(roles: Roles, superuser: Connection) -> None:
    """Of every table, view and function of the schema, tried one by one."""
    tables = rows(
        superuser,
        "SELECT c.relname::text, c.relkind = 'v' FROM pg_class c"
        " WHERE c.relnamespace = 'pgtasks'::regnamespace AND c.relkind IN ('r', 'v', 'p')",
    )
    for name, is_view in tables:
        statements = [f"SELECT * FROM pgtasks.{name}"]
        if not is_view:
            statements += [f"DELETE FROM pgtasks.{name}", f"TRUNCATE pgtasks.{name}"]
        if not is_view and name != "tasks":
            statements.append(f"INSERT INTO pgtasks.{name} DEFAULT VALUES")
        for statement in statements:
            assert not allowed(roles["producer"], statement), statement
    functions = rows(
        superuser,
        "SELECT p.proname::text FROM pg_proc p WHERE p.pronamespace = 'pgtasks'::regnamespace"
        " AND has_function_privilege(%s, p.oid, 'EXECUTE') AND p.prorettype <> 'trigger'::regtype",
        roles.name("producer"),
    )
    assert {name for (name,) in functions} == {"enqueue", "enqueue_task", "enqueue_many"}


def test_the_whole_way_of_tasks_through_roles_alone(roles: Roles, superuser: Connection, offline: Run) -> None:
    """Added by a producer, run, failed, retried, fired and swept by a worker, steered by an admin, seen by a reader."""
    app = App(roles["producer"])
    task = app.task(name="echo")(lambda **payload: payload)
    assert app.enqueue_many(task.prepare(n=n) for n in range(20)).created == 20
    app.enqueue("fail_for_good")
    app.enqueue("fail")
    app.close()
    admin = ("--dsn", roles["admin"])
    assert offline("schedules", "add", "tick", "@every 1s", "echo", *admin).code == 0
    assert offline("queues", "pause", "default", *admin).code == 0
    superuser.execute(
        "WITH lease AS (INSERT INTO pgtasks.leases (worker_id, expires_at, task_ids) SELECT gen_random_uuid(), now(), "
        "array_agg(id) FROM pgtasks.tasks WHERE name = 'fail_for_good' RETURNING id) "
        "UPDATE pgtasks.tasks SET state = 'running', claimed_at = now(), attempt = 1, lease_id = lease.id FROM lease "
        "WHERE name = 'fail_for_good'"
    )
    with WorkerProcess("tests.apps.basic:app", roles["worker"], "--lease", "1", "--sweep-interval", "0.2") as worker:
        wait_until(lambda: "worker started" in worker.output(), 15, hint=worker.output)
        assert offline("queues", "resume", "default", *admin).code == 0
        wait_until(lambda: value(superuser, "SELECT count(*) FROM pgtasks.dead_letters") == 2, 15, hint=worker.output)
        wait_until(
            lambda: value(superuser, "SELECT count(*) FROM pgtasks.schedule_fires WHERE outcome = 'fired'") > 1,
            15,
            hint=worker.output,
        )
        assert offline("dead", "replay", *admin).code == 0
        wait_until(lambda: value(superuser, "SELECT count(*) FROM pgtasks.dead_letters") == 2, 15, hint=worker.output)
        assert offline("schedules", "remove", "tick", *admin).code == 0
        assert offline("dead", "purge", "--all", "--yes", *admin).code == 0
        for command in (("status",), ("tasks", "list"), ("doctor",), ("schedules", "list"), ("workers", "list")):
            assert offline(*command, "--dsn", roles["reader"]).code in {0, 1}, command
        assert "permission denied" not in worker.output()
        worker.terminate()
        assert worker.wait() == 0, worker.output()
    assert value(superuser, "SELECT count(*) FROM pgtasks.history WHERE name = 'echo'") >= 20


@pytest.mark.parametrize("kind", ["worker", "reader", "admin"])
def test_facts_for_metrics_can_be_read(roles: Roles, superuser: Connection, kind: str) -> None:
    """By whoever exports them: a worker, or `pgtasks metrics` as a reader; and the schema is looked at."""
    ((id,),) = rows(superuser, "SELECT pgtasks.enqueue('facts', queue => 'facts', delay => '1 hour')")
    reader = DatabaseReader(roles[kind], pooler="none")
    try:
        assert sum(reader.read().queues["facts"].tasks.values()) == 1
    finally:
        reader.close()
        rows(superuser, "DELETE FROM pgtasks.tasks WHERE id = %s", id)


def test_granting_again_changes_nothing(roles: Roles, superuser: Connection, offline: Run) -> None:
    """And the command says what it did."""
    acl = (
        "SELECT array_agg(c.relacl::text ORDER BY c.oid) FROM pg_class c WHERE c.relnamespace = 'pgtasks'::regnamespace"
    )
    before = value(superuser, acl)
    ran = offline("grant", "reader", roles.name("reader"), "--dsn", roles["owner"])
    assert (ran.code, ran.out) == (0, f"role {roles.name('reader')} has the rights of a reader now\n")
    assert value(superuser, acl) == before


def test_what_is_printed_is_what_is_run(roles: Roles, superuser: Connection, offline: Run) -> None:
    """For a DBA; it needs no server."""
    printed = offline("grant", "worker", 'odd "name', "--sql")
    assert printed.code == 0
    assert printed.out.count('TO "odd ""name"') == len(granting.script("worker", "x"))
    superuser.execute('CREATE ROLE "odd ""name"')
    superuser.execute(printed.out.encode())
    assert value(superuser, """SELECT has_table_privilege('odd "name', 'pgtasks.leases', 'DELETE')""")
    superuser.execute('DROP OWNED BY "odd ""name" CASCADE')
    superuser.execute('DROP ROLE "odd ""name"')


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (("reder", "x", "--sql"), 2, "did you mean 'reader'"),
        (("reader", "", "--sql"), 2, "1 to 63 bytes"),
        (("reader", "x" * 64, "--sql"), 2, "1 to 63 bytes"),
        (("reader", "x", "--sql", "--json"), 2, "leave out --json"),
        (("reader", "nobody_of_that_name"), 3, "CREATE ROLE"),
    ],
)
def test_bad_input(roles: Roles, offline: Run, argv: tuple[str, ...], code: int, said: str) -> None:
    """Each with what to do instead."""
    ran = offline("grant", *argv, "--dsn", roles["owner"])
    assert (ran.code, said in ran.err) == (code, True), ran.err


def test_a_role_that_does_not_own_the_schema(roles: Roles, offline: Run) -> None:
    """PostgreSQL only warns about that and grants nothing."""
    ran = offline("grant", "reader", roles.name("stranger"), "--dsn", roles["admin"])
    assert ran.code == 2
    assert "does not own the schema" in ran.err
    assert roles.name("owner") in ran.err


def test_the_page_says_what_is_granted() -> None:
    """docs/roles.md shows the statements of each kind, as printed."""
    page = (ROOT / "docs" / "roles.md").read_text(encoding="utf-8")
    for kind in granting.KINDS:
        printed = "".join(f"{statement};\n" for statement in granting.script(kind, "app"))
        assert f"```sql\n{printed}```" in page, kind
