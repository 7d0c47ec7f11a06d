-- Deletes one batch of dead letters for good.
--
-- Parameters: the filters of dead_letters_list.sql, after (the last id of the batch before),
-- limit. Returns one row: last_id (NULL when none was left), picked, and the ids deleted.
-- Index: dead_letters_pkey in id order. A row that somebody else holds is passed over.
WITH picked AS MATERIALIZED (
    SELECT d.id
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

gone AS (
    DELETE FROM pgtasks.dead_letters AS d
    WHERE d.id = ANY(array(SELECT p.id FROM picked AS p))
    RETURNING d.id
)

SELECT
    max(g.id) AS last_id,
    count(*) AS picked,
    coalesce(array_agg(g.id ORDER BY g.id), '{}') AS purged
FROM gone AS g
