-- Lists running tasks, those that were claimed first first: what a live view shows.
--
-- Parameters: scan (task ids of leases looked at), limit. Returns id, queue, name, attempt,
-- claimed_at, worker_id, worker (its name, NULL when its row is gone), and whether somebody wants
-- the task cancelled. Payloads are not read.
-- Index: leases_pkey, whose order is about that of the claims; then tasks_pkey, one probe for each
-- id. What a lease has finished is still among its ids, and not held any more.
WITH held AS MATERIALIZED (
    SELECT
        l.id AS lease_id,
        l.worker_id,
        x.task_id
    FROM pgtasks.leases AS l
    CROSS JOIN LATERAL unnest(l.task_ids) AS x (task_id)
    ORDER BY l.id
    LIMIT %(scan)s
)

SELECT
    t.id,
    t.queue,
    t.name,
    t.attempt,
    t.claimed_at,
    h.worker_id,
    w.name AS worker,
    t.cancel_requested_at IS NOT NULL AS is_cancelled
FROM held AS h
CROSS JOIN LATERAL (
    SELECT r.id, r.queue, r.name, r.attempt, r.claimed_at, r.cancel_requested_at
    FROM pgtasks.tasks AS r
    WHERE r.id = h.task_id AND r.lease_id = h.lease_id
    LIMIT 1
) AS t
LEFT JOIN pgtasks.workers AS w ON h.worker_id = w.id
ORDER BY t.claimed_at, t.id
LIMIT %(limit)s
