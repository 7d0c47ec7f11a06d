-- Finds old transactions that keep vacuum from removing dead rows of this database.
--
-- Parameters: older_than_s, limit. Returns kind (session, prepared, or listener), pid, its age in seconds,
-- user, application (the name of a prepared transaction), and state; the oldest first.
-- A listener is one of our listening sessions that waits for its stopped worker to take what it
-- sends, which is wrong within seconds, whatever older_than_s is.
-- Reads pg_stat_activity, which shows other users' sessions only to members of
-- pg_read_all_stats, and pg_prepared_xacts. Vacuum ignores vacuums, and so does this.
SELECT
    x.kind,
    x.pid,
    extract(EPOCH FROM clock_timestamp() - x.since)::double precision AS age_s,
    x.username,
    x.application,
    x.state
FROM (
    SELECT
        CASE
            WHEN a.application_name LIKE 'pgtasks/listen/%%' AND a.wait_event = 'ClientWrite' THEN 'listener'
            ELSE 'session'
        END AS kind,
        a.pid,
        a.xact_start AS since,
        coalesce(a.usename::text, a.backend_type) AS username,
        a.application_name AS application,
        coalesce(a.state, a.backend_type) AS state
    FROM pg_stat_activity AS a
    WHERE (a.datname = current_database() OR a.backend_type = 'walsender')
        AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL)
        AND a.backend_type <> 'autovacuum worker'
        AND a.pid <> pg_backend_pid()
        AND NOT EXISTS (SELECT FROM pg_stat_progress_vacuum AS v WHERE v.pid = a.pid)
    UNION ALL
    SELECT 'prepared', NULL, p.prepared, p.owner::text, p.gid, 'prepared'
    FROM pg_prepared_xacts AS p
    WHERE p.database = current_database()
) AS x
WHERE x.since < clock_timestamp() - make_interval(
    secs => CASE x.kind WHEN 'listener' THEN 2 ELSE %(older_than_s)s END
)
ORDER BY x.since
LIMIT %(limit)s
