-- Says which revision the schema is at.
--
-- Returns one row: exists (is there a version table), and the server's version number.
SELECT
    to_regclass('pgtasks.schema_version') IS NOT NULL AS is_there,
    current_setting('server_version_num')::integer AS server_version,
    pg_is_in_recovery() OR current_setting('default_transaction_read_only')::boolean AS read_only
