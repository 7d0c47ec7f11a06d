-- Claims up to a limit of due tasks of one queue, from where this worker's cursor stands, or stood a moment ago.
-- Suspects (tasks whose process was lost) are left to tasks_claim_suspects.sql.
--
-- Parameters: queue; limit; names (the handlers this worker has); worker_id; lease_s; and
-- the lanes, highest priority first, as three arrays of one length: priorities, run_ats, ids
-- (the (run_at, id) behind which to begin in that priority).
-- Returns the claimed rows, in any order.
-- Index: tasks_claim_order, entered once per lane at that place; so neither the dead entries of
-- what finished before nor the delayed tasks behind the due ones are walked. Then tasks_pkey.
--
-- Shape: the rows are chosen and locked in a MATERIALIZED step, because as a plain subquery
-- the planner may run it once per outer row and lock more than the limit. The LATERAL limit
-- stops inside a lane, the outer one across lanes: rows are locked one at a time as they are
-- pulled, so nothing beyond the limit is ever locked. FOR NO KEY UPDATE lets foreign keys of
-- users' own tables point at tasks. statement_timestamp() and not clock_timestamp(), which is
-- volatile and could not bound the index scan. No indexed column is written (heap-only
-- update). The rows are updated through the lease's array, and not through a join with `due`,
-- because an array is expected to be short: without statistics or planner settings, a join may
-- become a hash join that reads the whole table. least(): attempt counts may not overflow and fail the whole batch.
WITH due AS MATERIALIZED (
    SELECT pick.id
    FROM unnest(
        %(priorities)s::smallint[], %(run_ats)s::timestamptz[], %(ids)s::bigint[]
    ) AS lane (priority, run_at, id)
    CROSS JOIN LATERAL (
        SELECT t.id
        FROM pgtasks.tasks AS t
        WHERE t.queue = %(queue)s
            AND t.priority = lane.priority
            AND (t.run_at, t.id) > (lane.run_at, lane.id)
            AND t.run_at <= statement_timestamp()
            AND t.state = 'queued'
            AND t.losses = 0
            AND t.name = ANY(%(names)s::text[])
        ORDER BY t.run_at, t.id
        LIMIT %(limit)s
        FOR NO KEY UPDATE OF t SKIP LOCKED
    ) AS pick
    WHERE NOT EXISTS (
        SELECT FROM pgtasks.queues AS q WHERE q.name = %(queue)s AND q.paused_at IS NOT NULL
    )
    LIMIT %(limit)s
),

lease AS (
    INSERT INTO pgtasks.leases (worker_id, expires_at, task_ids)
    SELECT
        %(worker_id)s,
        clock_timestamp() + make_interval(secs => %(lease_s)s),
        array_agg(due.id ORDER BY due.id)
    FROM due
    HAVING count(*) > 0
    RETURNING id, task_ids
)

UPDATE pgtasks.tasks AS t
SET
    state = 'running',
    attempt = least(t.attempt, 2147483646) + 1,
    lease_id = lease.id,
    claimed_at = clock_timestamp()
FROM lease
WHERE t.id = ANY(lease.task_ids)
RETURNING
    t.id, t.lease_id, t.name, t.payload::text, t.attempt, t.max_attempts,
    extract(EPOCH FROM t.timeout)::double precision AS timeout_s, t.priority, t.run_at, t.headers::text,
    t.losses
