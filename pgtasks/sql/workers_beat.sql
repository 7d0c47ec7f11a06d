-- One heartbeat of one worker: its leases live on, it is seen, and it learns what was lost
-- and what somebody wants cancelled.
--
-- Parameters: worker_id; lease_s; lease_ids (leases with unfinished tasks); task_ids (running
-- tasks); busy (how many); draining.
-- Returns one row: now (the database's clock), kept (leases that are still ours),
-- cancelled (running tasks of ours whose cancellation was requested), registered.
-- Index: leases_pkey, workers_pkey, tasks_pkey. All updates are heap-only.
--
-- A lease that is not in `kept` was swept: the handlers of its tasks are stopped. The leases
-- are locked in the order of their ids, as a completion that deletes several does.
WITH mine AS MATERIALIZED (
    SELECT l.id
    FROM pgtasks.leases AS l
    WHERE l.id = ANY(%(lease_ids)s::bigint[]) AND l.worker_id = %(worker_id)s::uuid
    ORDER BY l.id
    FOR NO KEY UPDATE
),

renewed AS (
    UPDATE pgtasks.leases AS l
    SET expires_at = clock_timestamp() + make_interval(secs => %(lease_s)s)
    FROM mine
    WHERE l.id = mine.id
    RETURNING l.id
),

seen AS (
    UPDATE pgtasks.workers AS w
    SET last_seen_at = clock_timestamp(), busy = %(busy)s, draining = %(draining)s
    WHERE w.id = %(worker_id)s::uuid
    RETURNING w.id
)

SELECT
    clock_timestamp() AS now,
    coalesce((SELECT array_agg(r.id) FROM renewed AS r), '{}') AS kept,
    coalesce((
        SELECT array_agg(t.id) FROM pgtasks.tasks AS t
        WHERE t.id = ANY(%(task_ids)s::bigint[])
            AND t.lease_id = ANY(%(lease_ids)s::bigint[])
            AND t.cancel_requested_at IS NOT NULL
    ), '{}') AS cancelled,
    EXISTS(SELECT 1 FROM seen) AS registered
