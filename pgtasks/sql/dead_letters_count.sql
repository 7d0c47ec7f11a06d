-- Counts the dead letters of some queues, up to a limit for each.
--
-- Parameters: queues, limit. Returns queue, dead (one that reaches the limit means "or more"),
-- and what PostgreSQL's statistics think the whole table has.
-- Index: dead_letters_queue, read index-only, at most `limit` entries of each queue.
SELECT
    q.queue,
    x.dead,
    (SELECT c.reltuples::bigint FROM pg_class AS c WHERE c.oid = 'pgtasks.dead_letters'::regclass) AS table_rows
FROM unnest(%(queues)s::text[]) AS q (queue)
CROSS JOIN LATERAL (
    SELECT count(*) AS dead
    FROM (SELECT d.queue FROM pgtasks.dead_letters AS d WHERE d.queue = q.queue LIMIT %(limit)s) AS y
) AS x
