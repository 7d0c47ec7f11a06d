-- Tells the database what this worker can run; rows that say so already are not touched.
--
-- Parameters: arrays of one length: names, queues, priorities, max_attempts, timeouts
-- (seconds), retries (JSON texts). Returns nothing. Index: task_types_pkey.
-- Ordered by name: workers that start together lock the rows in one order.
INSERT INTO pgtasks.task_types AS k (name, queue, priority, max_attempts, timeout, retry)
SELECT
    n.name,
    n.queue,
    n.priority,
    n.max_attempts,
    make_interval(secs => n.timeout_s),
    n.retry::jsonb
FROM unnest(
    %(names)s::text[], %(queues)s::text[], %(priorities)s::smallint[], %(max_attempts)s::integer[],
    %(timeouts)s::double precision[], %(retries)s::text[]
) AS n (name, queue, priority, max_attempts, timeout_s, retry)
ORDER BY n.name
ON CONFLICT (name) DO UPDATE SET
    queue = excluded.queue,
    priority = excluded.priority,
    max_attempts = excluded.max_attempts,
    timeout = excluded.timeout,
    retry = excluded.retry,
    updated_at = clock_timestamp()
WHERE (k.queue, k.priority, k.max_attempts, k.timeout, k.retry)
    IS DISTINCT FROM (excluded.queue, excluded.priority, excluded.max_attempts, excluded.timeout, excluded.retry)
