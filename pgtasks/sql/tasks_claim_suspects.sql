-- Claims up to a limit of the due suspects of one queue: tasks whose process was lost the last
-- time they ran, and which no other claim takes.
--
-- Parameters: queue; limit (how many child processes are free); names (the handlers this worker
-- has, also those that run in its own process); worker_id; lease_s.
-- Returns the claimed rows, in any order.
-- Index: tasks_suspects, which holds the suspects in claim order and nearly always nothing. A claim
-- does not write its columns, so this is a heap-only update too. Then tasks_pkey.
--
-- Shape: as tasks_claim.sql, without a cursor: suspects are few, and those that wait for their
-- delay or run elsewhere are skipped. Without statistics and planner settings, those of the
-- queue may be read as a whole and sorted.
WITH due AS MATERIALIZED (
    SELECT t.id
    FROM pgtasks.tasks AS t
    WHERE t.queue = %(queue)s
        AND t.losses > 0
        AND t.run_at <= statement_timestamp()
        AND t.state = 'queued'
        AND t.name = ANY(%(names)s::text[])
        AND NOT EXISTS (
            SELECT FROM pgtasks.queues AS q WHERE q.name = %(queue)s AND q.paused_at IS NOT NULL
        )
    ORDER BY t.priority DESC, t.run_at, t.id
    LIMIT %(limit)s
    FOR NO KEY UPDATE OF t SKIP LOCKED
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
