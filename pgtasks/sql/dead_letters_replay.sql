-- Moves one batch of dead letters back into the queue, each with fresh attempts.
--
-- Parameters: the filters of dead_letters_list.sql, after (the last id of the batch before),
-- limit. Returns one row: last_id (NULL when none was left), picked, the ids replayed, and the
-- ids that stay because a living task has their unique_key.
-- Index: dead_letters_pkey in id order; tasks_unique_key.
-- A row that somebody else holds (another replay, a purge) is passed over: it is theirs. The
-- insert comes first and the delete takes what was inserted, so a key that is taken at this
-- very moment keeps its dead letter. Keys are taken in their order, as everybody does who takes
-- several at once.
WITH picked AS MATERIALIZED (
    SELECT d.*
    FROM pgtasks.dead_letters AS d
    WHERE d.id > %(after)s
        AND (%(queue)s::text IS NULL OR d.queue = %(queue)s)
        AND (%(name)s::text IS NULL OR d.name = %(name)s)
        AND (%(reason)s::text IS NULL OR d.reason = %(reason)s)
        AND (%(since)s::timestamptz IS NULL OR d.finished_at >= %(since)s)
        AND (%(before_time)s::timestamptz IS NULL OR d.finished_at < %(before_time)s)
        AND (%(ids)s::bigint[] IS NULL OR d.id = ANY(%(ids)s::bigint[]))
    ORDER BY d.id
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
),

added AS (
    INSERT INTO pgtasks.tasks (
        id, queue, name, payload, priority, max_attempts, timeout, unique_key, created_at, headers
    ) OVERRIDING SYSTEM VALUE
    SELECT
        p.id,
        p.queue,
        p.name,
        p.payload,
        p.priority,
        p.max_attempts,
        p.timeout,
        p.unique_key,
        p.created_at,
        p.headers
    FROM picked AS p
    ORDER BY p.unique_key NULLS FIRST, p.id
    ON CONFLICT DO NOTHING
    RETURNING id
),

moved AS (
    DELETE FROM pgtasks.dead_letters AS d
    WHERE d.id = ANY(array(SELECT a.id FROM added AS a))
    RETURNING d.id
)

SELECT
    max(p.id) AS last_id,
    count(*) AS picked,
    coalesce(array_agg(m.id ORDER BY m.id) FILTER (WHERE m.id IS NOT NULL), '{}') AS replayed,
    coalesce(array_agg(p.id ORDER BY p.id) FILTER (WHERE m.id IS NULL), '{}') AS taken
FROM picked AS p
LEFT JOIN moved AS m ON p.id = m.id
