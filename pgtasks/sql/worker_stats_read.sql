-- Lists the workers, the live ones first.
--
-- Parameters: limit; scan, of task ids looked at. Returns the columns of WorkerRow. Reads a small
-- view: one row per process.
-- busy: as of now, while the view has what the last heartbeat said. Counted are the tasks that the
-- worker's leases hold, and its stuck handlers, which hold none; outcomes under way to the database
-- are among them, hence no more than its slots. What a silent worker said last is no longer so:
-- its leases hold its tasks until a sweep takes them back. With more ids than are looked at, what
-- live workers said is the better number.
-- Index: tasks_pkey, one probe per running task; leases has one row per claimed batch.
WITH held AS MATERIALIZED (
    SELECT
        l.worker_id,
        l.id AS lease_id,
        h.task_id
    FROM pgtasks.leases AS l
    CROSS JOIN LATERAL unnest(l.task_ids) AS h (task_id)
    LIMIT %(scan)s
),

running AS (
    SELECT
        h.worker_id,
        count(*)::integer AS tasks
    FROM held AS h
    CROSS JOIN LATERAL (
        SELECT r.id FROM pgtasks.tasks AS r WHERE r.id = h.task_id AND r.lease_id = h.lease_id LIMIT 1
    ) AS t
    GROUP BY h.worker_id
)

SELECT
    w.id,
    w.name,
    w.queues,
    w.names,
    w.slots,
    CASE
        WHEN NOT w.alive THEN coalesce(r.tasks, 0)
        WHEN (SELECT count(*) FROM held) >= %(scan)s THEN w.busy
        ELSE least(w.slots, coalesce(r.tasks, 0) + w.stuck)
    END AS busy,
    w.draining,
    w.version,
    w.started_at,
    w.last_seen_at,
    w.alive,
    w.expired_leases,
    CASE WHEN w.alive THEN w.stuck ELSE 0 END AS stuck
FROM pgtasks.worker_stats AS w
LEFT JOIN running AS r ON w.id = r.worker_id
ORDER BY w.alive DESC, w.name, w.started_at, w.id
LIMIT %(limit)s
