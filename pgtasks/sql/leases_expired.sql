-- Finds the workers that hold expired leases, and how many tasks wait there to be taken back.
--
-- Returns worker_id, its name and when it was last seen (NULL when its row is gone), leases,
-- and tasks. A lease that expired within the last seconds is the next sweep's ordinary work.
-- Index: tasks_pkey, one probe per task of an expired lease; leases and workers are small.
SELECT
    l.worker_id,
    w.name,
    w.last_seen_at,
    count(DISTINCT l.id) AS leases,
    count(t.id) AS tasks,
    min(l.expires_at) AS expired_at
FROM pgtasks.leases AS l
LEFT JOIN pgtasks.workers AS w ON l.worker_id = w.id
LEFT JOIN LATERAL unnest(l.task_ids) AS held (task_id) ON true
LEFT JOIN LATERAL (
    SELECT r.id FROM pgtasks.tasks AS r WHERE r.id = held.task_id AND r.lease_id = l.id LIMIT 1
) AS t ON true
WHERE l.expires_at < clock_timestamp() - make_interval(secs => %(tolerated_s)s)
GROUP BY l.worker_id, w.name, w.last_seen_at
ORDER BY min(l.expires_at)
LIMIT %(limit)s
