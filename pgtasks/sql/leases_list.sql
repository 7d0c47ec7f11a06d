-- Lists expired leases with the tasks they still hold, for a sweep that goes one by one because
-- some row fails it.
--
-- Parameters: skip_leases (left out); limit. Returns id, task_ids.
-- Index: leases is small and read in full; tasks_pkey, one probe per task.
--
-- It locks nothing: what is renewed, completed or swept meanwhile is found so by the sweep.
SELECT
    l.id,
    array(
        SELECT t.id
        FROM pgtasks.tasks AS t
        WHERE t.id = ANY(l.task_ids) AND t.lease_id = l.id
        ORDER BY t.id
    ) AS task_ids
FROM pgtasks.leases AS l
WHERE l.expires_at < clock_timestamp() AND l.id <> ALL(%(skip_leases)s::bigint[])
ORDER BY l.id
LIMIT %(limit)s
