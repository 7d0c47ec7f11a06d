-- Gives a batch of tasks back to the queue without charging an attempt: snoozed by their
-- handlers (with a delay), or unfinished when their worker stops (without one). A task whose
-- cancellation was requested meanwhile is finished as cancelled.
--
-- Parameters: worker_id; arrays of one length, sorted by id: ids, lease_ids, delays (seconds), ended
-- (whether its attempt ended by itself, which clears losses; NULL: of none); emptied (leases whose
-- last task this is).
-- Returns moved: NULL when every task was taken, else the ids of those that were.
-- Index: tasks_pkey, as in tasks_complete.sql. Fencing and lock order as in tasks_retry.sql; the
-- attempt number may come back, the lease id never does, which is why leases fence.
WITH mine AS MATERIALIZED (
    SELECT t.id, t.cancel_requested_at IS NOT NULL AS is_cancelled, t.queue
    FROM pgtasks.tasks AS t
    WHERE t.id = ANY(%(ids)s::bigint[])
        AND t.lease_id = (%(lease_ids)s::bigint[])[width_bucket(t.id, %(ids)s::bigint[])]
    ORDER BY t.id
    FOR UPDATE
),

requeued AS (
    UPDATE pgtasks.tasks AS t
    SET
        state = 'queued',
        attempt = greatest(t.attempt - 1, 0),
        losses = CASE
            WHEN (%(ended)s::boolean[])[width_bucket(t.id, %(ids)s::bigint[])] THEN 0 ELSE t.losses
        END,
        lease_id = NULL,
        claimed_at = NULL,
        run_at = clock_timestamp() + make_interval(
            secs => (%(delays)s::double precision[])[width_bucket(t.id, %(ids)s::bigint[])]
        )
    WHERE t.id = ANY(array(SELECT m.id FROM mine AS m WHERE NOT m.is_cancelled))
),

cancelled AS (
    DELETE FROM pgtasks.tasks AS t
    WHERE t.id = ANY(array(SELECT m.id FROM mine AS m WHERE m.is_cancelled))
    RETURNING t.*
),

kept AS (
    INSERT INTO pgtasks.history (
        id, lease_id, created_at, run_at, started_at, attempt, max_attempts, priority, status, queue,
        name, payload, unique_key, worker_id, error, headers
    )
    SELECT
        c.id, c.lease_id, c.created_at, c.run_at, c.claimed_at, c.attempt, c.max_attempts, c.priority, 'cancelled',
        c.queue, c.name, c.payload, c.unique_key, %(worker_id)s::uuid, 'cancelled while it ran', c.headers
    FROM cancelled AS c
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
),

rung AS (
    SELECT count(pgtasks.ring(q.queue)) AS bells FROM (SELECT DISTINCT m.queue FROM mine AS m) AS q
)

SELECT CASE WHEN count(*) < cardinality(%(ids)s::bigint[]) THEN coalesce(array_agg(m.id), '{}') END AS moved
FROM mine AS m
WHERE (SELECT r.bells FROM rung AS r) IS NOT NULL
