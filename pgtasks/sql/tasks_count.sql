-- Counts the live tasks of some queues exactly, up to a limit for each.
--
-- Parameters: queues, limit. Returns queue, the four counts, and their total: one that reaches
-- the limit means "or more".
-- Index: tasks_claim_order, at most `limit` rows of each queue in claim order.
SELECT
    q.queue,
    count(*) FILTER (WHERE x.state = 'queued' AND x.attempt = 0 AND x.run_at > statement_timestamp()) AS scheduled,
    count(*) FILTER (WHERE x.state = 'queued' AND x.attempt = 0 AND x.run_at <= statement_timestamp()) AS queued,
    count(*) FILTER (WHERE x.state = 'running') AS running,
    count(*) FILTER (WHERE x.state = 'queued' AND x.attempt > 0) AS retrying,
    count(x.state) AS total
FROM unnest(%(queues)s::text[]) AS q (queue)
LEFT JOIN LATERAL (
    SELECT t.state, t.attempt, t.run_at
    FROM pgtasks.tasks AS t
    WHERE t.queue = q.queue
    ORDER BY t.priority DESC, t.run_at, t.id
    LIMIT %(limit)s
) AS x ON true
GROUP BY q.queue
