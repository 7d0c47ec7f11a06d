-- Says which revision the schema is at.
--
-- Returns one row: is there a version table; the server's version number; does it only read; are
-- there tables of ours beside it.
SELECT
    to_regclass('pgtasks.schema_version') IS NOT NULL AS is_there,
    current_setting('server_version_num')::integer AS server_version,
    pg_is_in_recovery() OR current_setting('default_transaction_read_only')::boolean AS read_only,
    EXISTS(
        SELECT FROM pg_class AS c
        WHERE c.relnamespace = to_regnamespace('pgtasks')
            AND c.relname IN (
                'tasks', 'leases', 'history', 'attempts', 'dead_letters', 'workers', 'queues', 'task_types'
            )
    ) AS has_tables
