-- Lists the workers, the live ones first.
--
-- Parameter: limit. Returns the columns of WorkerRow. Reads a small view: one row per process.
-- busy: what a silent worker said last is no longer so; counted are the tasks that its leases hold
-- until a sweep takes them back. Index: tasks_pkey, one probe per task; leases is small.
SELECT
    w.id,
    w.name,
    w.queues,
    w.names,
    w.slots,
    CASE
        WHEN w.alive THEN w.busy
        ELSE (
            SELECT count(*)
            FROM pgtasks.leases AS l
            CROSS JOIN LATERAL unnest(l.task_ids) AS held (id)
            INNER JOIN pgtasks.tasks AS t ON held.id = t.id AND l.id = t.lease_id
            WHERE l.worker_id = w.id
        )::integer
    END AS busy,
    w.draining,
    w.version,
    w.started_at,
    w.last_seen_at,
    w.alive,
    w.expired_leases,
    CASE WHEN w.alive THEN w.stuck ELSE 0 END AS stuck
FROM pgtasks.worker_stats AS w
ORDER BY w.alive DESC, w.name, w.started_at, w.id
LIMIT %(limit)s
