-- One heartbeat of one worker: its leases live on, it is seen, and it learns what was lost
-- and what somebody wants cancelled.
--
-- Parameters: worker_id; lease_s; lease_ids (leases with unfinished tasks); task_ids and
-- task_lease_ids (running tasks, arrays of one length); busy (how many); stuck
-- (how many of these are handlers that were given up); draining.
-- Returns one row: now (the database's clock), kept (leases that are renewed), locked (leases of
-- ours that somebody has locked, so that they are not), cancelled (running tasks of ours whose
-- cancellation was requested), lost (positions, from 1, of the running tasks that are not held
-- by their lease any more), registered.
-- Index: leases_pkey, workers_pkey, tasks_pkey. All updates are heap-only.
--
-- A lease that is neither in `kept` nor in `locked` was swept: the handlers of its tasks are
-- stopped. A lease can also be swept in part (the sweep leaves alone what somebody has locked),
-- which `lost` tells. A lease that expired and was not swept lives on: after a stall it is
-- renewed like any other.
-- It waits for no row: one locked lease must not cost the worker all the others, nor may a lock
-- on the worker's own row, which is seen again with the next heartbeat. Who locks a lease may be
-- the sweep or our own completion that deletes it; the next heartbeat finds it gone.
WITH mine AS MATERIALIZED (
    SELECT l.id
    FROM pgtasks.leases AS l
    WHERE l.id = ANY(%(lease_ids)s::bigint[]) AND l.worker_id = %(worker_id)s::uuid
    ORDER BY l.id
    FOR NO KEY UPDATE SKIP LOCKED
),

renewed AS (
    UPDATE pgtasks.leases AS l
    SET expires_at = clock_timestamp() + make_interval(secs => %(lease_s)s)
    WHERE l.id = ANY(array(SELECT m.id FROM mine AS m))
    RETURNING l.id
),

me AS MATERIALIZED (
    SELECT w.id FROM pgtasks.workers AS w WHERE w.id = %(worker_id)s::uuid FOR NO KEY UPDATE SKIP LOCKED
),

seen AS (
    UPDATE pgtasks.workers AS w
    SET last_seen_at = clock_timestamp(), busy = %(busy)s, stuck = %(stuck)s, draining = %(draining)s
    FROM me
    WHERE w.id = me.id
),

running AS MATERIALIZED (
    SELECT f.position, f.id, t.id IS NULL AS is_lost, t.cancel_requested_at IS NOT NULL AS is_cancelled
    FROM unnest(
        %(task_ids)s::bigint[], %(task_lease_ids)s::bigint[]
    ) WITH ORDINALITY AS f (id, lease_id, position)
    LEFT JOIN LATERAL (
        SELECT r.id, r.cancel_requested_at
        FROM pgtasks.tasks AS r
        WHERE r.id = f.id AND r.lease_id = f.lease_id
        LIMIT 1
    ) AS t ON true
)

SELECT
    clock_timestamp() AS now,
    coalesce((SELECT array_agg(r.id) FROM renewed AS r), '{}') AS kept,
    CASE
        WHEN (SELECT count(*) FROM mine) < cardinality(%(lease_ids)s::bigint[]) THEN array(
            SELECT l.id
            FROM pgtasks.leases AS l
            WHERE l.id = ANY(%(lease_ids)s::bigint[])
                AND l.worker_id = %(worker_id)s::uuid
                AND NOT EXISTS (SELECT FROM mine AS m WHERE m.id = l.id)
        )
        ELSE '{}'
    END AS locked,
    coalesce((SELECT array_agg(t.id) FROM running AS t WHERE t.is_cancelled), '{}') AS cancelled,
    coalesce((SELECT array_agg(t.position) FROM running AS t WHERE t.is_lost), '{}') AS lost,
    EXISTS(SELECT FROM pgtasks.workers AS w WHERE w.id = %(worker_id)s::uuid) AS registered
