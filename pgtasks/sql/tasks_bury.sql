-- Moves a batch of tasks that failed for good to dead_letters and records the attempts. A task
-- whose cancellation was requested meanwhile is finished as cancelled: nobody wants it any more.
--
-- Parameters: worker_id; arrays of one length, sorted by id: ids, lease_ids, reasons, outcomes,
-- error_classes, errors, tracebacks, and the usual ones as in tasks_retry.sql; emptied (leases whose
-- last task this is).
-- Returns moved: NULL when every task was moved, else the ids of those that were.
-- Index: tasks_pkey, one probe per task, as in tasks_retry.sql.
--
-- Fencing and lock order as in tasks_retry.sql. ON CONFLICT: an id that is in dead_letters
-- already can only have been put there by hand; it must not fail its neighbours.
WITH dead AS MATERIALIZED (
    SELECT
        t.*, f.reason,
        coalesce(f.outcome, %(usual_outcome)s) AS outcome,
        coalesce(f.error_class, %(usual_error_class)s) AS error_class,
        coalesce(f.error, %(usual_error)s) AS error,
        coalesce(f.traceback, %(usual_traceback)s) AS traceback
    FROM unnest(
        %(ids)s::bigint[], %(lease_ids)s::bigint[], %(reasons)s::text[], %(outcomes)s::text[],
        %(error_classes)s::text[], %(errors)s::text[], %(tracebacks)s::text[]
    ) AS f (id, lease_id, reason, outcome, error_class, error, traceback)
    CROSS JOIN LATERAL (
        SELECT r.* FROM pgtasks.tasks AS r WHERE r.id = f.id AND r.lease_id = f.lease_id FOR UPDATE
    ) AS t
),

gone AS (
    DELETE FROM pgtasks.tasks AS t
    WHERE t.id = ANY(array(SELECT d.id FROM dead AS d))
),

kept AS (
    INSERT INTO pgtasks.dead_letters (
        id, lease_id, created_at, run_at, started_at, attempt, max_attempts, priority, reason, queue, name,
        payload, unique_key, timeout, worker_id, error_class, error, traceback, headers
    )
    SELECT
        d.id, d.lease_id, d.created_at, d.run_at, d.claimed_at, d.attempt, d.max_attempts, d.priority, d.reason,
        d.queue, d.name, d.payload, d.unique_key, d.timeout, %(worker_id)s::uuid, d.error_class, d.error,
        d.traceback, d.headers
    FROM dead AS d
    WHERE d.cancel_requested_at IS NULL
    ON CONFLICT (id) DO UPDATE SET
        lease_id = excluded.lease_id,
        reason = excluded.reason,
        error = excluded.error,
        finished_at = excluded.finished_at
),

cancelled AS (
    INSERT INTO pgtasks.history (
        id, lease_id, created_at, run_at, started_at, attempt, max_attempts, priority, status, queue,
        name, payload, unique_key, worker_id, error, headers
    )
    SELECT
        d.id, d.lease_id, d.created_at, d.run_at, d.claimed_at, d.attempt, d.max_attempts, d.priority, 'cancelled',
        d.queue, d.name, d.payload, d.unique_key, %(worker_id)s::uuid, 'cancelled while it ran', d.headers
    FROM dead AS d
    WHERE d.cancel_requested_at IS NOT NULL
),

recorded AS (
    INSERT INTO pgtasks.attempts (
        task_id, attempt, lease_id, worker_id, outcome, error_class, error, traceback, queue, name, started_at
    )
    SELECT
        d.id, d.attempt, d.lease_id, %(worker_id)s::uuid, d.outcome, d.error_class, d.error, d.traceback, d.queue,
        d.name, d.claimed_at
    FROM dead AS d
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
FROM dead AS d
