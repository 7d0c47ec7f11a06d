-- Says which server and database this is, its time, and whether rows went to a default partition.
--
-- Returns one row. The default partitions are probed for a single row each.
SELECT
    current_setting('server_version') AS version,
    current_database()::text AS database,
    clock_timestamp() AS now,
    EXISTS(SELECT FROM pgtasks.history_default) AS history_unpartitioned,
    EXISTS(SELECT FROM pgtasks.attempts_default) AS attempts_unpartitioned
