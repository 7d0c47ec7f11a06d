-- Says which cluster this is, and the timeline that it writes: what a failover changes.
--
-- No parameters. The timeline is read from the name of the WAL file, because the control file
-- learns of a new one only with the first checkpoint after a promotion; a standby writes none.
-- Every role may call these functions, unless an administrator or a provider took that away.
SELECT
    (SELECT c.system_identifier::text FROM pg_control_system() AS c) AS system,
    CASE
        WHEN pg_is_in_recovery() THEN NULL
        ELSE ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer
    END AS timeline
