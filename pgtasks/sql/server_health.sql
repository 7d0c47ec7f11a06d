-- Reads what of a server's settings and state matters to a queue.
--
-- Returns one HealthRow. Settings are read and never set. `is_pooled` compares the process that
-- answers with the one that the session was opened with, which a pooler does not keep.
-- `sees_others` tells whether other users' sessions can be seen whole (pg_read_all_stats): what
-- they hold open is otherwise unknown.
SELECT
    current_setting('server_version_num')::integer AS version_num,
    clock_timestamp() AS now,
    current_user::text AS username,
    pg_is_in_recovery() AS in_recovery,
    current_setting('default_transaction_read_only') AS read_only,
    pg_backend_pid() <> %(opened_pid)s AS is_pooled,
    pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') AS sees_others,
    current_setting('fsync') AS fsync,
    current_setting('full_page_writes') AS full_page_writes,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('autovacuum') AS autovacuum,
    current_setting('track_counts') AS track_counts,
    current_setting('max_connections')::integer
    - current_setting('superuser_reserved_connections')::integer AS connections_max,
    (SELECT count(*) FROM pg_stat_activity AS a WHERE a.backend_type = 'client backend') AS connections,
    pg_notification_queue_usage() AS notify_usage
