-- Finds transactions that are open, do nothing, and hold locks, but no snapshot.
--
-- Parameters: older_than_s, limit. Returns pid, its age in seconds, user, application; the oldest
-- first. They do not keep vacuum from its work (server_transactions.sql has those that do), but
-- whatever changes a table they have read waits for them: migrations, and the pruning of history.
SELECT
    a.pid,
    extract(EPOCH FROM clock_timestamp() - a.xact_start)::double precision AS age_s,
    a.usename::text AS username,
    a.application_name AS application
FROM pg_stat_activity AS a
WHERE a.datname = current_database()
    AND a.state LIKE 'idle in transaction%%'
    AND a.backend_xmin IS NULL AND a.backend_xid IS NULL
    AND a.xact_start < clock_timestamp() - make_interval(secs => %(older_than_s)s)
ORDER BY a.xact_start
LIMIT %(limit)s
