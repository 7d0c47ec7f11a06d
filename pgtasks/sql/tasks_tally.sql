-- Counts, among a stretch of the live tasks, those that some filters match, by queue, name and status.
--
-- Parameters: those of tasks_cancel_many.sql without limit. Returns queue, name, status, tasks,
-- last_id: at least one row unless there was nothing to look at; its queue is NULL when nothing matched.
-- Index: tasks_pkey in id order, at most `scan` rows of it.
WITH seen AS MATERIALIZED (
    SELECT
        t.id,
        t.queue,
        t.name,
        CASE
            WHEN t.state = 'running' THEN 'running'
            WHEN t.attempt > 0 THEN 'retrying'
            WHEN t.run_at > statement_timestamp() THEN 'scheduled'
            ELSE 'queued'
        END AS status
    FROM pgtasks.tasks AS t
    WHERE t.id > %(after)s AND t.id <= %(until)s
    ORDER BY t.id
    LIMIT %(scan)s
),

kinds AS (
    SELECT
        s.queue,
        s.name,
        s.status,
        count(*) AS tasks
    FROM seen AS s
    WHERE (s.status = 'running') = %(is_running)s
        AND (%(queue)s::text IS NULL OR s.queue = %(queue)s)
        AND (%(name)s::text IS NULL OR s.name = %(name)s)
        AND (%(status)s::text IS NULL OR s.status = %(status)s)
    GROUP BY s.queue, s.name, s.status
),

ends AS (
    SELECT max(s.id) AS last_id
    FROM seen AS s
)

SELECT
    k.queue,
    k.name,
    k.status,
    coalesce(k.tasks, 0) AS tasks,
    e.last_id
FROM ends AS e
LEFT JOIN kinds AS k ON true
WHERE e.last_id IS NOT NULL
ORDER BY k.tasks DESC, k.queue, k.name, k.status
