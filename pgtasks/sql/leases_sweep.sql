-- Takes back the tasks of expired leases: to the queue, or to dead_letters when their attempts
-- are used up, or to history when their cancellation was requested.
--
-- Parameters: fresh_until (the database's time until which the caller's own last heartbeat
-- counts as fresh); limit (leases at once); max_attempts (for names nobody registered);
-- skip_leases (these are left out); lease_id and task_ids (only this one, only these; or NULL);
-- cause (how their process is known to have ended, or NULL: then only their leases tell).
-- Returns one row: leases (looked at), closed (of these, deleted), requeued, dead, cancelled
-- (tasks). Counts.
-- Index: leases is small and read in full; tasks_pkey, one probe per task, as in tasks_retry.sql.
--
-- fresh_until: after a stall of the whole database every lease looks expired. A sweep that
-- waited in the stall arrives with a fresh_until in the past and takes nothing; the heartbeats
-- that waited beside it renew first (pgtasks/engine/heartbeat.py). The clock is read twice, in
-- this order: a stall between the two can only close the window, never expire a lease.
-- Everything is SKIP LOCKED: a task that is being completed at this moment is left alone, and
-- its lease then stays for the next sweep. So the sweep waits for nobody, and one conflicting
-- row does not fail the batch.
-- A row that cannot be changed (a user's foreign key or trigger) fails the whole statement: the
-- caller then goes lease by lease and task by task, and leaves out for a while what fails.
-- Backoff: the first loss is retried at once, since its cause is nearly always a killed
-- process and not the task; from the second on the delay doubles, drawn at random, up to a
-- minute, because a task that kills its worker must not do so in a tight loop.
WITH expired AS MATERIALIZED (
    SELECT l.id, l.worker_id, l.task_ids, l.expires_at
    FROM pgtasks.leases AS l
    WHERE l.expires_at < clock_timestamp() AND clock_timestamp() < %(fresh_until)s::timestamptz
        AND l.id <> ALL(%(skip_leases)s::bigint[])
        AND (%(lease_id)s::bigint IS NULL OR l.id = %(lease_id)s::bigint)
    ORDER BY l.id
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
),

held AS MATERIALIZED (
    SELECT
        t.id, t.lease_id, t.queue, t.name, t.created_at, t.run_at, t.claimed_at, t.attempt, t.max_attempts,
        t.priority, t.unique_key, t.timeout, e.worker_id, e.expires_at, f.fate,
        -- What goes back to the queue keeps them where they are.
        CASE WHEN f.fate <> 'queued' THEN t.payload END AS payload,
        CASE WHEN f.fate <> 'queued' THEN t.headers END AS headers
    FROM expired AS e
    CROSS JOIN LATERAL unnest(e.task_ids) AS x (id)
    CROSS JOIN LATERAL (
        SELECT r.* FROM pgtasks.tasks AS r WHERE r.id = x.id AND r.lease_id = e.id FOR UPDATE SKIP LOCKED
    ) AS t
    LEFT JOIN pgtasks.task_types AS k ON t.name = k.name
    CROSS JOIN LATERAL (
        SELECT
            CASE
                WHEN t.cancel_requested_at IS NOT NULL THEN 'cancelled'
                WHEN t.attempt >= coalesce(t.max_attempts, k.max_attempts, %(max_attempts)s) THEN 'dead'
                ELSE 'queued'
            END AS fate
    ) AS f
    WHERE %(task_ids)s::bigint[] IS NULL OR x.id = ANY(%(task_ids)s::bigint[])
),

requeued AS (
    UPDATE pgtasks.tasks AS t
    SET
        state = 'queued',
        lease_id = NULL,
        claimed_at = NULL,
        losses = least(t.losses, 32766) + 1,
        run_at = clock_timestamp() + make_interval(
            secs => CASE WHEN t.attempt > 1 THEN random() * least(60, 2 ^ least(t.attempt - 2, 10)) ELSE 0 END
        )
    WHERE t.id = ANY(array(SELECT h.id FROM held AS h WHERE h.fate = 'queued'))
    RETURNING t.id
),

ended AS (
    DELETE FROM pgtasks.tasks AS t
    WHERE t.id = ANY(array(SELECT h.id FROM held AS h WHERE h.fate <> 'queued'))
),

buried AS (
    INSERT INTO pgtasks.dead_letters (
        id, lease_id, created_at, run_at, started_at, attempt, max_attempts, priority, reason, queue, name,
        payload, unique_key, timeout, worker_id, error_class, error, headers
    )
    SELECT
        d.id, d.lease_id, d.created_at, d.run_at, d.claimed_at, d.attempt, d.max_attempts, d.priority,
        'worker_lost', d.queue, d.name, d.payload, d.unique_key, d.timeout, d.worker_id, 'WorkerLost',
        coalesce(%(cause)s::text, 'the worker died, was cut off or stalled') || ' in attempt ' || d.attempt
        || ', the last one' || CASE WHEN %(cause)s::text IS NULL THEN ': its lease expired' ELSE '' END,
        d.headers
    FROM held AS d
    WHERE d.fate = 'dead'
    ON CONFLICT (id) DO UPDATE SET
        lease_id = excluded.lease_id,
        reason = excluded.reason,
        error = excluded.error,
        finished_at = excluded.finished_at
),

kept AS (
    INSERT INTO pgtasks.history (
        id, lease_id, created_at, run_at, started_at, attempt, max_attempts, priority, status, queue,
        name, payload, unique_key, worker_id, error, headers
    )
    SELECT
        c.id, c.lease_id, c.created_at, c.run_at, c.claimed_at, c.attempt, c.max_attempts, c.priority, 'cancelled',
        c.queue, c.name, c.payload, c.unique_key, c.worker_id, 'cancelled; its worker was lost meanwhile', c.headers
    FROM held AS c
    WHERE c.fate = 'cancelled'
),

recorded AS (
    INSERT INTO pgtasks.attempts (
        task_id, attempt, lease_id, worker_id, outcome, error_class, error, queue, name, started_at
    )
    SELECT
        h.id, h.attempt, h.lease_id, h.worker_id, 'worker_lost', 'WorkerLost',
        coalesce(
            %(cause)s::text,
            'the worker died, was cut off or stalled: its lease expired at '
            || to_char(h.expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
        ),
        h.queue, h.name, h.claimed_at
    FROM held AS h
),

emptied AS (
    DELETE FROM pgtasks.leases AS l
    WHERE l.id = ANY(array(
        SELECT e.id
        FROM expired AS e
        WHERE NOT EXISTS (
            -- OFFSET keeps this a look by the primary key for each lease, whatever the planner believes.
            SELECT FROM pgtasks.tasks AS t
            WHERE t.id = ANY(e.task_ids) AND t.lease_id = e.id AND t.id NOT IN (SELECT h.id FROM held AS h)
            OFFSET 0
        )
    ))
    RETURNING l.id
),

rung AS (
    SELECT count(pgtasks.ring(q.queue)) AS bells
    FROM (SELECT DISTINCT h.queue FROM held AS h WHERE h.fate = 'queued') AS q
)

SELECT
    (SELECT count(*) FROM expired) AS leases,
    (SELECT count(*) FROM emptied) AS closed,
    (SELECT count(*) FROM requeued) AS requeued,
    (SELECT count(*) FROM held AS h WHERE h.fate = 'dead') AS dead,
    (SELECT count(*) FROM held AS h WHERE h.fate = 'cancelled') AS cancelled
WHERE (SELECT r.bells FROM rung AS r) IS NOT NULL
