-- Lists the queues there are, with what can be told about each without counting its tasks.
--
-- Parameter: limit. Returns queue, paused_at, the due time of its oldest waiting task, and how
-- many live workers serve it; by name.
-- Index: tasks_claim_order and dead_letters_queue, as loose scans: one probe per queue, and one
-- per priority in use (the first 100), whatever the number of tasks.
WITH RECURSIVE live (queue, step) AS (
    (SELECT t.queue, 1 FROM pgtasks.tasks AS t WHERE t.queue >= '' ORDER BY t.queue LIMIT 1)
    UNION ALL
    SELECT
        (SELECT t.queue FROM pgtasks.tasks AS t WHERE t.queue > l.queue ORDER BY t.queue LIMIT 1),
        l.step + 1
    FROM live AS l
    WHERE l.queue IS NOT NULL AND l.step < %(limit)s
),

dead (queue, step) AS (
    (SELECT d.queue, 1 FROM pgtasks.dead_letters AS d ORDER BY d.queue LIMIT 1)
    UNION ALL
    SELECT
        (SELECT d.queue FROM pgtasks.dead_letters AS d WHERE d.queue > l.queue ORDER BY d.queue LIMIT 1),
        l.step + 1
    FROM dead AS l
    WHERE l.queue IS NOT NULL AND l.step < %(limit)s
),

alive (queue, workers) AS (
    SELECT
        served.queue,
        count(*)
    FROM pgtasks.worker_stats AS w
    CROSS JOIN LATERAL unnest(w.queues) AS served (queue)
    WHERE w.alive
    GROUP BY served.queue
),

names (queue) AS (
    SELECT l.queue FROM live AS l WHERE l.queue IS NOT NULL
    UNION
    SELECT l.queue FROM dead AS l WHERE l.queue IS NOT NULL
    UNION
    SELECT q.name FROM pgtasks.queues AS q
    UNION
    SELECT tt.queue FROM pgtasks.task_types AS tt
    UNION
    SELECT a.queue FROM alive AS a
)

SELECT
    n.queue,
    q.paused_at,
    o.oldest_waiting_since,
    coalesce(a.workers, 0) AS workers
FROM names AS n
LEFT JOIN pgtasks.queues AS q ON n.queue = q.name
LEFT JOIN alive AS a ON n.queue = a.queue
LEFT JOIN LATERAL (
    WITH RECURSIVE lanes (priority, step) AS (
        (SELECT t.priority, 1 FROM pgtasks.tasks AS t WHERE t.queue = n.queue ORDER BY t.priority DESC LIMIT 1)
        UNION ALL
        SELECT
            (
                SELECT t.priority FROM pgtasks.tasks AS t
                WHERE t.queue = n.queue AND t.priority < l.priority ORDER BY t.priority DESC LIMIT 1
            ),
            l.step + 1
        FROM lanes AS l
        WHERE l.priority IS NOT NULL AND l.step < 100
    )

    SELECT min(f.run_at) AS oldest_waiting_since
    FROM lanes AS l
    CROSS JOIN LATERAL (
        SELECT t.run_at FROM pgtasks.tasks AS t
        WHERE t.queue = n.queue AND t.priority = l.priority
            AND t.state = 'queued' AND t.run_at <= statement_timestamp()
        ORDER BY t.run_at, t.id LIMIT 1
    ) AS f
) AS o ON true
ORDER BY n.queue
LIMIT %(limit)s
