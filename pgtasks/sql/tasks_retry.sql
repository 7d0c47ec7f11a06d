-- Puts a batch of failed tasks back into the queue, due after their delays, and records the
-- attempts. A task whose cancellation was requested meanwhile is finished as cancelled.
--
-- Parameters: worker_id; arrays of one length, sorted by id: ids, lease_ids, delays (seconds),
-- outcomes, error_classes, errors, tracebacks (NULL where a failure is the usual one); usual_outcome,
-- usual_error_class, usual_error, usual_traceback; emptied (leases whose last task this is).
-- Returns moved: NULL when every task was taken, else the ids of those that were.
-- Index: tasks_pkey, one probe per task, from the batch to the table and never the other way round
-- (docs/adr/0002-plans-that-do-not-flip.md). In arrays of texts a place far behind costs a walk, as
-- it does not in the others; hence a join here.
--
-- Fencing as in tasks_complete.sql. The rows are locked in the order of their ids first. The
-- new run_at lies after every claimer's cursor, so no cursor has passed it. The bell is rung
-- because sleepers must learn of the new due time: this worker may be gone or full by then.
-- A task whose process died (worker_lost) is a suspect from then on; any other end clears it.
WITH mine AS MATERIALIZED (
    SELECT
        t.id, t.cancel_requested_at IS NOT NULL AS is_cancelled, f.lease_id,
        coalesce(f.outcome, %(usual_outcome)s) AS outcome,
        coalesce(f.error_class, %(usual_error_class)s) AS error_class,
        coalesce(f.error, %(usual_error)s) AS error,
        coalesce(f.traceback, %(usual_traceback)s) AS traceback,
        t.attempt, t.queue, t.name, t.claimed_at
    FROM unnest(
        %(ids)s::bigint[], %(lease_ids)s::bigint[], %(outcomes)s::text[], %(error_classes)s::text[],
        %(errors)s::text[], %(tracebacks)s::text[]
    ) AS f (id, lease_id, outcome, error_class, error, traceback)
    CROSS JOIN LATERAL (
        SELECT r.id, r.cancel_requested_at, r.attempt, r.queue, r.name, r.claimed_at
        FROM pgtasks.tasks AS r
        WHERE r.id = f.id AND r.lease_id = f.lease_id
        FOR UPDATE
    ) AS t
),

requeued AS (
    UPDATE pgtasks.tasks AS t
    SET
        state = 'queued',
        lease_id = NULL,
        claimed_at = NULL,
        losses = CASE
            WHEN t.id = ANY(array(SELECT m.id FROM mine AS m WHERE m.outcome = 'worker_lost'))
                THEN least(t.losses, 32766) + 1
            ELSE 0
        END,
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

recorded AS (
    INSERT INTO pgtasks.attempts (
        task_id, attempt, lease_id, worker_id, outcome, error_class, error, traceback, queue, name, started_at
    )
    SELECT
        m.id, m.attempt, m.lease_id, %(worker_id)s::uuid, m.outcome, m.error_class, m.error, m.traceback, m.queue,
        m.name, m.claimed_at
    FROM mine AS m
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
