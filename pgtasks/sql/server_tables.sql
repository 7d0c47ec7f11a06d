-- Reads what PostgreSQL's statistics say of the tables that a queue wears out.
--
-- Returns one TableRow per table: live and dead rows as estimated, updates and heap-only ones
-- of them since the statistics were reset, sizes in bytes, the last vacuum, and whether
-- autovacuum was turned off for it.
SELECT
    s.relname::text AS name,
    s.n_live_tup AS live_rows,
    s.n_dead_tup AS dead_rows,
    s.n_tup_upd AS updates,
    s.n_tup_hot_upd AS hot_updates,
    pg_relation_size(s.relid) AS table_bytes,
    pg_indexes_size(s.relid) AS index_bytes,
    greatest(s.last_vacuum, s.last_autovacuum) AS vacuumed_at,
    coalesce('autovacuum_enabled=false' = ANY(c.reloptions) OR 'autovacuum_enabled=off' = ANY(c.reloptions), false)
        AS autovacuum_off
FROM pg_stat_user_tables AS s
INNER JOIN pg_class AS c ON s.relid = c.oid
WHERE s.schemaname = 'pgtasks'
    AND s.relname IN ('tasks', 'leases', 'workers', 'dead_letters', 'schedules', 'schedule_fires')
ORDER BY s.relname
