-- Counts the running tasks by queue, through the leases that hold them.
--
-- Parameter: limit, of task ids looked at. Returns queue and running. Exact even in a queue of
-- millions, whose other counts are estimates: what runs is bounded by the workers' slots.
-- Index: tasks_pkey, one probe per running task; leases has one row per claimed batch.
SELECT
    t.queue,
    count(*) AS running
FROM (
    SELECT
        l.id AS lease_id,
        held.task_id
    FROM pgtasks.leases AS l
    CROSS JOIN LATERAL unnest(l.task_ids) AS held (task_id)
    LIMIT %(limit)s
) AS h
CROSS JOIN LATERAL (
    SELECT r.queue FROM pgtasks.tasks AS r WHERE r.id = h.task_id AND r.lease_id = h.lease_id LIMIT 1
) AS t
GROUP BY t.queue
