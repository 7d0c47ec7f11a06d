-- Claims up to a limit of due tasks of one queue from the head of every priority in use:
-- what a cursor has passed and could miss (a row committed late, a run_at in the past, a
-- priority not seen before) is found by this one. Also the claim of a worker that wakes up.
--
-- Parameters: queue; limit; names; worker_id; lease_s.
-- Returns the claimed rows, in any order, behind two columns that are the same in all of them: is_paused (the
-- queue is), and alike (where the limit was reached, how many workers with the same handlers serve this queue, this
-- one with them; else 0, as nobody needs to know it). One row with nulls for the task where nothing was claimed.
-- Index: tasks_claim_order: one probe per priority in use, highest first, then the rows.
-- Then tasks_pkey. All of workers, where the limit was reached.
--
-- Shape: as tasks_claim.sql, with the lanes found by a loose index scan instead of given. A lane
-- begins at its first row that is there (in the one snapshot of this statement there is none
-- before it), so that what is dead at its head is walked once, to find that row, and not again.
-- Whether the queue is paused is told from the same snapshot as that nothing was claimed.
WITH RECURSIVE lane (priority, run_at, id) AS (
    (
        SELECT t.priority, t.run_at, t.id
        FROM pgtasks.tasks AS t
        WHERE t.queue = %(queue)s ORDER BY t.priority DESC, t.run_at, t.id LIMIT 1
    )
    UNION ALL
    SELECT below.priority, below.run_at, below.id
    FROM lane
    CROSS JOIN LATERAL (
        SELECT t.priority, t.run_at, t.id
        FROM pgtasks.tasks AS t
        WHERE t.queue = %(queue)s AND t.priority < lane.priority ORDER BY t.priority DESC, t.run_at, t.id LIMIT 1
    ) AS below
),

due AS MATERIALIZED (
    SELECT pick.id
    FROM lane
    CROSS JOIN LATERAL (
        SELECT t.id
        FROM pgtasks.tasks AS t
        WHERE t.queue = %(queue)s
            AND t.priority = lane.priority
            AND (t.run_at, t.id) >= (lane.run_at, lane.id)
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
),

claimed AS (
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
),

seen AS (
    SELECT
        EXISTS(
            SELECT FROM pgtasks.queues AS q WHERE q.name = %(queue)s AND q.paused_at IS NOT NULL
        ) AS is_paused,
        CASE
            WHEN (SELECT cardinality(lease.task_ids) FROM lease) >= %(limit)s THEN (
                SELECT count(*)
                FROM pgtasks.workers AS w
                WHERE (w.names, coalesce(w.isolated, '{}')) = (
                        SELECT me.names, coalesce(me.isolated, '{}')
                        FROM pgtasks.workers AS me
                        WHERE me.id = %(worker_id)s
                    )
                    AND %(queue)s = ANY(w.queues)
                    AND NOT w.draining
                    AND w.last_seen_at > clock_timestamp() - make_interval(secs => w.lease_s)
            )
            ELSE 0
        END AS alike
)

SELECT
    seen.is_paused,
    seen.alike,
    claimed.*
FROM seen
LEFT JOIN claimed ON true
