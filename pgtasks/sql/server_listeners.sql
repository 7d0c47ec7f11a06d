-- Finds sessions that cannot get rid of what the server sends them, and hold back vacuum meanwhile.
--
-- Parameter: limit. Returns pid, user, application, and for how many seconds it has been so. A
-- session that listens and whose process stands still (SIGSTOP, a debugger) ends up here once
-- its socket is full of notifications.
SELECT
    a.pid,
    a.usename::text AS username,
    a.application_name AS application,
    extract(EPOCH FROM clock_timestamp() - a.state_change)::double precision AS stuck_s
FROM pg_stat_activity AS a
WHERE a.datname = current_database() AND a.wait_event = 'ClientWrite' AND a.backend_xmin IS NOT NULL
ORDER BY a.state_change
LIMIT %(limit)s
