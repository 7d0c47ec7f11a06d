-- Counts the names of the tasks that wait at the head of some queues.
--
-- Parameters: queues, limit. Returns queue, name and the number of due tasks among the first
-- `limit` in claim order. Tasks that nobody can run stay at the head, so they are found here
-- even in a queue that is too long to be read.
-- Index: tasks_claim_order, at most `limit` waiting rows of each queue.
SELECT
    q.queue,
    x.name,
    count(*) AS waiting
FROM unnest(%(queues)s::text[]) AS q (queue)
CROSS JOIN LATERAL (
    SELECT t.name
    FROM pgtasks.tasks AS t
    WHERE t.queue = q.queue AND t.state = 'queued' AND t.run_at <= statement_timestamp()
    ORDER BY t.priority DESC, t.run_at, t.id
    LIMIT %(limit)s
) AS x
GROUP BY q.queue, x.name
