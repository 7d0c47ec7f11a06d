-- Counts the due tasks that a worker leaves behind as its drain ends, and tells a queue that is not there.
--
-- Parameters: queues; names (the handlers the worker has). Returns one row per queue, in the
-- order given: queue; paused; runnable and foreign_names (due tasks, waiting, of names it knows and
-- of others), both among the first 1,000; more (there are at least so many); known (a task of
-- any kind is in the queue, it was paused once, or a task type belongs to it).
-- Index: tasks_claim_order: per queue one probe per priority in use, then the due rows.
SELECT
    s.queue,
    coalesce((SELECT q.paused_at IS NOT NULL FROM pgtasks.queues AS q WHERE q.name = s.queue), false) AS paused,
    due.runnable,
    due.total - due.runnable AS foreign_names,
    due.total = 1000 AS more,
    -- Not with EXISTS, for which the order is thrown away and the whole table may be read.
    (SELECT t.id FROM pgtasks.tasks AS t WHERE t.queue = s.queue ORDER BY t.priority DESC LIMIT 1) IS NOT NULL
    OR EXISTS (SELECT FROM pgtasks.queues AS q WHERE q.name = s.queue)
    OR EXISTS (SELECT FROM pgtasks.task_types AS tt WHERE tt.queue = s.queue) AS known
FROM unnest(%(queues)s::text[]) WITH ORDINALITY AS s (queue, ordinal)
CROSS JOIN LATERAL (
    WITH RECURSIVE lane (priority) AS (
        (
            SELECT t.priority FROM pgtasks.tasks AS t
            WHERE t.queue = s.queue ORDER BY t.priority DESC LIMIT 1
        )
        UNION ALL
        SELECT (
            SELECT t.priority FROM pgtasks.tasks AS t
            WHERE t.queue = s.queue AND t.priority < lane.priority ORDER BY t.priority DESC LIMIT 1
        )
        FROM lane
        WHERE lane.priority IS NOT NULL
    )

    SELECT
        count(*) AS total,
        count(*) FILTER (WHERE found.name = ANY(%(names)s::text[])) AS runnable
    FROM (
        SELECT pick.name
        FROM lane
        CROSS JOIN LATERAL (
            SELECT t.name FROM pgtasks.tasks AS t
            WHERE t.queue = s.queue AND t.priority = lane.priority
                AND t.run_at <= statement_timestamp() AND t.state = 'queued'
            ORDER BY t.run_at, t.id
            LIMIT 1000
        ) AS pick
        LIMIT 1000
    ) AS found
) AS due
ORDER BY s.ordinal
