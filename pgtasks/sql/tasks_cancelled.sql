-- Moves a batch of running tasks that ended as cancelled to history and records the attempts.
--
-- Parameters: worker_id; arrays of one length, sorted by id: ids, lease_ids, reasons; emptied
-- (leases whose last task this is).
-- Returns moved: NULL when every task was moved, else the ids of those that were.
-- Index: tasks_pkey, one probe per task, as in tasks_retry.sql. Fencing and lock order as there.
WITH done AS MATERIALIZED (
    SELECT t.*, f.reason
    FROM unnest(%(ids)s::bigint[], %(lease_ids)s::bigint[], %(reasons)s::text[]) AS f (id, lease_id, reason)
    CROSS JOIN LATERAL (
        SELECT r.* FROM pgtasks.tasks AS r WHERE r.id = f.id AND r.lease_id = f.lease_id FOR UPDATE
    ) AS t
),

gone AS (
    DELETE FROM pgtasks.tasks AS t
    WHERE t.id = ANY(array(SELECT d.id FROM done AS d))
),

kept AS (
    INSERT INTO pgtasks.history (
        id, lease_id, created_at, run_at, started_at, attempt, max_attempts, priority, status, queue,
        name, payload, unique_key, worker_id, error, headers
    )
    SELECT
        d.id, d.lease_id, d.created_at, d.run_at, d.claimed_at, d.attempt, d.max_attempts, d.priority, 'cancelled',
        d.queue, d.name, d.payload, d.unique_key, %(worker_id)s::uuid, d.reason, d.headers
    FROM done AS d
),

recorded AS (
    INSERT INTO pgtasks.attempts (
        task_id, attempt, lease_id, worker_id, outcome, error, queue, name, started_at
    )
    SELECT
        d.id, d.attempt, d.lease_id, %(worker_id)s::uuid, 'cancelled', d.reason, d.queue, d.name, d.claimed_at
    FROM done AS d
),

spent AS MATERIALIZED (
    SELECT l.id
    FROM pgtasks.leases AS l
    WHERE l.id = ANY(%(emptied)s::bigint[]) AND l.worker_id = %(worker_id)s::uuid
    ORDER BY l.id
    FOR UPDATE SKIP LOCKED
),

emptied AS (
    DELETE FROM pgtasks.leases AS l
    WHERE l.id = ANY(array(SELECT s.id FROM spent AS s))
)

SELECT CASE WHEN count(*) < cardinality(%(ids)s::bigint[]) THEN coalesce(array_agg(d.id), '{}') END AS moved
FROM done AS d
