-- Says when the next task of these queues becomes due, for a worker that wants to sleep.
--
-- Parameters: queues. Returns one row: seconds from now, NULL when nothing waits.
-- Index: tasks_claim_order: per queue one probe per priority in use, then one at "now".
-- Names are not looked at: a task that this worker cannot run wakes it once, for nothing.
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
    SELECT t.run_at FROM pgtasks.tasks AS t
    WHERE t.queue = lane.queue AND t.priority = lane.priority AND t.run_at > statement_timestamp()
        AND t.state = 'queued'
    ORDER BY t.run_at
    LIMIT 1
) AS next
