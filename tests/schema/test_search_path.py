"""X-03: whatever a session's search_path holds, our functions mean our tables and PostgreSQL's own functions."""

from collections.abc import Iterator

import psycopg
import pytest

from pgtasks import schema
from tests.access import acting
from tests.database import Connection, Server, rows, value
from tests.schema import snapshot

# Runs for every INSERT: setting a search_path there would cost more than the rest of it.
QUALIFIED_BY_HAND = {"tasks_inserted"}

# Everything here gives a wrong answer or leaves a mark when it is called.
EVIL = """
CREATE SCHEMA evil;
CREATE TABLE evil.called (what text);
CREATE TABLE evil.tasks (id bigint, queue text, name text, payload jsonb);
CREATE TABLE evil.task_types (name text, queue text);
CREATE TABLE evil.queues (name text, paused_at timestamptz);
CREATE FUNCTION evil.mark(what text) RETURNS void LANGUAGE sql AS 'INSERT INTO evil.called VALUES (what)';
CREATE FUNCTION evil.pg_notify(a text, b text) RETURNS void LANGUAGE sql AS $$SELECT evil.mark('pg_notify')$$;
CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$
    SELECT evil.mark('clock'); SELECT timestamptz '1999-01-01 00:00:00+00' $$;
CREATE FUNCTION evil.statement_timestamp() RETURNS timestamptz LANGUAGE sql AS $$
    SELECT evil.mark('clock'); SELECT timestamptz '1999-01-01 00:00:00+00' $$;
CREATE FUNCTION evil.hashtextextended(a text, b bigint) RETURNS bigint LANGUAGE sql AS $$
    SELECT evil.mark('hash'); SELECT 1::bigint $$;
CREATE FUNCTION evil.pg_try_advisory_xact_lock_shared(a bigint) RETURNS boolean LANGUAGE sql AS $$
    SELECT evil.mark('lock'); SELECT true $$;
CREATE FUNCTION evil.pg_try_advisory_xact_lock(a bigint) RETURNS boolean LANGUAGE sql AS $$
    SELECT evil.mark('lock'); SELECT true $$;
CREATE FUNCTION evil.make_interval(secs double precision) RETURNS interval LANGUAGE sql AS $$
    SELECT evil.mark('make_interval'); SELECT interval '1 hour' $$;
CREATE FUNCTION evil.length(a text) RETURNS integer LANGUAGE sql AS $$SELECT evil.mark('length'); SELECT 7$$;
CREATE FUNCTION evil.equal(a text, b text) RETURNS boolean LANGUAGE sql AS $$SELECT evil.mark('='); SELECT false$$;
CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.equal);
CREATE FUNCTION evil.equal(a bigint, b bigint) RETURNS boolean LANGUAGE sql AS $$SELECT evil.mark('='); SELECT false$$;
CREATE OPERATOR evil.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = evil.equal);
CREATE FUNCTION evil.fetch(a jsonb, b text) RETURNS text LANGUAGE sql AS $$SELECT evil.mark('->>'); SELECT 'evil'$$;
CREATE OPERATOR evil.->> (LEFTARG = jsonb, RIGHTARG = text, FUNCTION = evil.fetch);
-- Who may not use a schema does not see it in the search_path: the owner of our functions must.
GRANT USAGE ON SCHEMA evil TO PUBLIC;
GRANT ALL ON ALL TABLES IN SCHEMA evil TO PUBLIC;
"""


@pytest.fixture(params=["", "evil, pg_catalog, pgtasks"], ids=["empty", "evil"])
def session(request: pytest.FixtureRequest, fresh_database: str) -> Iterator[Connection]:
    """An admin's session whose search_path is empty, or begins with look-alikes."""
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        connection.execute(EVIL.encode())
        connection.execute("SELECT set_config('search_path', %s, false)", (request.param,))
        with acting(connection, "admin"):
            yield connection
        assert rows(connection, "SELECT * FROM evil.called") == []


def test_plain_inserts_work(session: Connection, server: Server) -> None:
    """Defaults, checks and the trigger are ours; with a sleeping worker, so that the bell rings."""
    (database,) = rows(session, "SELECT pg_catalog.current_database()::text")[0]
    with psycopg.connect(server.dsn_for(database), autocommit=True) as sleeper:
        rows(sleeper, "SELECT pg_advisory_lock(hashtextextended('default', 7074617))")
        sleeper.execute("LISTEN pgtasks")
        rows(session, "INSERT INTO pgtasks.tasks (name) VALUES ('add')")
        bells = [notification.payload for notification in sleeper.notifies(timeout=5, stop_after=1)]
    assert bells == ["default"]
    with pytest.raises(psycopg.errors.CheckViolation, match="name_has_1_to_200_characters"):
        rows(session, "INSERT INTO pgtasks.tasks (name) VALUES ('')")


def test_every_function_works(session: Connection) -> None:
    """Each does to our tables what it says."""
    first = value(session, "SELECT pgtasks.enqueue('add', '{\"a\": 1}', queue => 'q', unique_key => 'k')")
    assert value(session, "SELECT pgtasks.enqueue('add', unique_key => 'k')") == first
    assert value(session, "SELECT pgtasks.enqueue('sub', unique_key => 'k', on_conflict => 'replace')") == first
    many = '[{"name": "add"}, {"name": "x", "unique_key": "k"}]'
    assert rows(session, "SELECT created FROM pgtasks.enqueue_many(%s::jsonb)", many) == [(True,), (False,)]
    assert value(session, "SELECT pgtasks.backlog('default')") == 2
    assert value(session, "SELECT pgtasks.pause('q')") is True
    assert value(session, "SELECT pgtasks.resume('q')") is True
    assert value(session, "SELECT pgtasks.retry(%s::bigint)", first) == "due"
    assert value(session, "SELECT pgtasks.cancel(%s::bigint)", first) == "cancelled"
    assert value(session, "SELECT pgtasks.retry(%s::bigint)", first) == "finished"
    assert value(session, "SELECT pgtasks.create_partitions(5)") == 4


def test_every_view_works(session: Connection) -> None:
    """What a view means was decided when it was made."""
    value(session, "SELECT pgtasks.enqueue('add')")
    assert rows(session, "SELECT name, status FROM pgtasks.all_tasks") == [("add", "queued")]
    assert rows(session, "SELECT queue, queued FROM pgtasks.queue_stats") == [("default", 1)]
    assert rows(session, "SELECT name FROM pgtasks.worker_stats") == []


def test_every_function_fixes_its_search_path(connection: Connection) -> None:
    """One that runs as its owner and did not would be a way to become the owner."""
    query = (
        "SELECT proname, prosecdef FROM pg_proc WHERE pronamespace = 'pgtasks'::regnamespace"
        " AND NOT coalesce('search_path=pg_catalog, pg_temp' = ANY(proconfig), false)"
    )
    assert dict(rows(connection, query)) == dict.fromkeys(QUALIFIED_BY_HAND, False)


def test_a_migration_under_an_evil_search_path_binds_to_nothing_evil(server: Server, empty_dsn: str) -> None:
    """Views, defaults and checks would keep for ever what the migrator's search_path meant."""
    server.alter(empty_dsn, "SET search_path = evil, pg_catalog")
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        connection.execute(EVIL.encode())
        schema.migrate(empty_dsn)
        assert rows(connection, "SELECT * FROM evil.called") == []
        connection.execute("SET client_min_messages = error; DROP SCHEMA evil CASCADE")
    assert snapshot.difference(snapshot.PATH.read_text(encoding="utf-8"), snapshot.describe(empty_dsn)) == ""
