-- Says who keeps a migration from getting its lock.
--
-- Parameters: pid, the migration's backend. Returns per blocker: its process id, its name, what
-- it does, for how many seconds its transaction has been open, its last statement, its role, and
-- whether it is hidden: of other roles' sessions that is all that non-members of pg_monitor see.
SELECT
    a.pid,
    coalesce(nullif(a.application_name, ''), a.backend_type, '') AS application,
    coalesce(a.state, 'unknown') AS state,
    coalesce(extract(EPOCH FROM clock_timestamp() - a.xact_start), 0)::float8 AS open_s,
    coalesce(a.query, '') AS query,
    coalesce(a.usename::text, '') AS username,
    coalesce(a.query = '<insufficient privilege>', false) AS hidden
FROM unnest(pg_blocking_pids(%(pid)s)) AS b (pid)
INNER JOIN pg_stat_activity AS a ON b.pid = a.pid
ORDER BY a.xact_start, a.pid
