-- Says when a worker that wants to sleep has to look again: when the next task becomes due.
--
-- Parameters: queues; names (the handlers this worker has). Returns one row: seconds from now,
-- NULL when nothing waits.
-- Index: tasks_claim_order: per queue one probe per priority in use, then one at "now".
--
-- Shape: of the tasks due next only the first 20 of each priority are looked at. If this
-- worker can run none of those, the answer is when the last of them is due: a flood of tasks
-- it cannot run neither wakes it for each of them nor is read in full.
WITH RECURSIVE lane (queue, priority) AS (
    (
        SELECT
            q.queue,
            (
                SELECT t.priority FROM pgtasks.tasks AS t
                WHERE t.queue = q.queue ORDER BY t.priority DESC LIMIT 1
            ) AS priority
        FROM unnest(%(queues)s::text[]) AS q (queue)
    )
    UNION ALL
    SELECT
        lane.queue,
        (
            SELECT t.priority FROM pgtasks.tasks AS t
            WHERE t.queue = lane.queue AND t.priority < lane.priority ORDER BY t.priority DESC LIMIT 1
        )
    FROM lane
    WHERE lane.priority IS NOT NULL
)

SELECT extract(EPOCH FROM min(next.run_at) - clock_timestamp())::double precision AS due_in_s
FROM lane
CROSS JOIN LATERAL (
    SELECT
        coalesce(
            min(ahead.run_at) FILTER (WHERE ahead.name = ANY(%(names)s::text[])),
            CASE WHEN count(*) = 20 THEN max(ahead.run_at) END
        ) AS run_at
    FROM (
        SELECT t.run_at, t.name FROM pgtasks.tasks AS t
        WHERE t.queue = lane.queue AND t.priority = lane.priority AND t.run_at > statement_timestamp()
            AND t.state = 'queued'
        ORDER BY t.run_at, t.id
        LIMIT 20
    ) AS ahead
) AS next
WHERE NOT EXISTS (SELECT FROM pgtasks.queues AS q WHERE q.name = lane.queue AND q.paused_at IS NOT NULL)
