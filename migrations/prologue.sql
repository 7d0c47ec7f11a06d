-- Begins the transaction of every migration, online and in the script for a DBA.
--
-- lock_timeout: a statement that waits for a table makes everybody after it wait as well, so it
-- gives up soon, and `pgtasks migrate` tries again. search_path: nothing in a migration can mean
-- an object of somebody else's schema. The rest undoes what a role may have set.
-- pgtasks.migrate_from is the revision that the migration continues from, empty for none.
SET LOCAL search_path = pg_catalog, pg_temp;

DO $$
DECLARE
    expected text := current_setting('pgtasks.migrate_from');
    actual text := '';
BEGIN
    IF current_setting('server_version_num')::integer < 150000 THEN
        RAISE 'pgtasks needs PostgreSQL 15 or newer, and this is %', current_setting('server_version');
    END IF;
    PERFORM set_config(s.name, wanted.value, true)
    FROM (
        VALUES
        ('lock_timeout', '1s'),
        ('statement_timeout', '10min'),
        ('transaction_timeout', '0'),
        ('idle_in_transaction_session_timeout', '1min'),
        ('timezone', 'UTC'),
        ('datestyle', 'ISO'),
        ('intervalstyle', 'postgres'),
        ('check_function_bodies', 'on'),
        ('client_min_messages', 'warning')
    ) AS wanted (name, value)
    INNER JOIN pg_settings s ON lower(s.name) = wanted.name;
    IF to_regnamespace('pgtasks') IS NULL THEN
        CREATE SCHEMA pgtasks;
    END IF;
    IF to_regclass('pgtasks.schema_version') IS NOT NULL THEN
        SELECT v.version_num INTO actual FROM pgtasks.schema_version v;
    END IF;
    IF coalesce(actual, '') <> expected THEN
        RAISE 'this migration continues from revision "%", and the schema is at "%"', expected, coalesce(actual, '');
    END IF;
END
$$;
