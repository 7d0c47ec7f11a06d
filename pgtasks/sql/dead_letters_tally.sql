-- Counts the dead letters that some filters match, for a dry run.
--
-- Parameters: the filters of dead_letters_list.sql, limit. Returns queue, name, reason, how many,
-- and how many of them have a unique_key that a living task has taken.
-- Index: dead_letters_pkey for ids, dead_letters_queue for a queue, else the whole table;
-- tasks_unique_key for each key.
SELECT
    x.queue,
    x.name,
    x.reason,
    count(*) AS dead_letters,
    count(*) FILTER (WHERE x.is_taken) AS taken
FROM (
    SELECT
        d.queue,
        d.name,
        d.reason,
        EXISTS(SELECT FROM pgtasks.tasks AS t WHERE t.unique_key = d.unique_key) AS is_taken
    FROM pgtasks.dead_letters AS d
    WHERE (%(queue)s::text IS NULL OR d.queue = %(queue)s)
        AND (%(name)s::text IS NULL OR d.name = %(name)s)
        AND (%(reason)s::text IS NULL OR d.reason = %(reason)s)
        AND (%(since)s::timestamptz IS NULL OR d.finished_at >= %(since)s)
        AND (%(before_time)s::timestamptz IS NULL OR d.finished_at < %(before_time)s)
        AND (%(ids)s::bigint[] IS NULL OR d.id = ANY(%(ids)s::bigint[]))
    ORDER BY d.id
    LIMIT %(limit)s
) AS x
GROUP BY x.queue, x.name, x.reason
ORDER BY count(*) DESC, x.queue, x.name, x.reason
