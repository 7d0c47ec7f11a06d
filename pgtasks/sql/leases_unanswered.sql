-- Finds the tasks that a claim of this worker took although its reply was lost: the tasks of
-- its leases that it never heard of.
--
-- Parameters: worker_id; after (the last lease it heard of before that claim: lease ids grow);
-- known (leases it heard of since). Returns task_id, lease_id, sorted by task_id.
-- Index: leases_pkey, from `after` on; then tasks_pkey, one probe per task.
SELECT t.id AS task_id, l.id AS lease_id
FROM pgtasks.leases AS l
CROSS JOIN LATERAL unnest(l.task_ids) AS held (id)
CROSS JOIN LATERAL (
    SELECT r.id FROM pgtasks.tasks AS r WHERE r.id = held.id AND r.lease_id = l.id LIMIT 1
) AS t
WHERE l.id > %(after)s
    AND l.worker_id = %(worker_id)s
    AND l.id <> ALL(%(known)s::bigint[])
ORDER BY t.id
