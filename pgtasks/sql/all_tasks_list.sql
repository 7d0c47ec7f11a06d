-- Lists tasks from the three places they are stored in, newest (highest id) first.
--
-- Parameters: before (only lower ids), queue, name, status (NULL for any), the three places to look
-- in (in_tasks, in_history, in_dead), scan, limit. Returns TaskRow, and nothing of a payload.
-- Index: tasks_pkey, history_id of every partition and dead_letters_pkey, each walked backwards
-- for at most `scan` rows, to which the filters apply: a rare name does not make it read
-- millions. Not through the view, whose UNION ALL would be sorted as a whole.
WITH live AS (
    SELECT x.*
    FROM (
        SELECT
            t.id,
            t.queue,
            t.name,
            CASE
                WHEN t.state = 'running' THEN 'running'
                WHEN t.attempt > 0 THEN 'retrying'
                WHEN t.run_at > statement_timestamp() THEN 'scheduled'
                ELSE 'queued'
            END AS status,
            t.attempt,
            t.priority,
            t.run_at,
            t.created_at,
            t.claimed_at AS started_at,
            NULL::timestamptz AS finished_at
        FROM pgtasks.tasks AS t
        WHERE t.id < %(before)s AND %(in_tasks)s
        ORDER BY t.id DESC
        LIMIT %(scan)s
    ) AS x
    WHERE (%(queue)s::text IS NULL OR x.queue = %(queue)s)
        AND (%(name)s::text IS NULL OR x.name = %(name)s)
        AND (%(status)s::text IS NULL OR x.status = %(status)s)
    ORDER BY x.id DESC
    LIMIT %(limit)s
),

finished AS (
    SELECT x.*
    FROM (
        SELECT
            h.id,
            h.queue,
            h.name,
            h.status,
            h.attempt,
            h.priority,
            h.run_at,
            h.created_at,
            h.started_at,
            h.finished_at
        FROM pgtasks.history AS h
        WHERE h.id < %(before)s AND %(in_history)s
        ORDER BY h.id DESC
        LIMIT %(scan)s
    ) AS x
    WHERE (%(queue)s::text IS NULL OR x.queue = %(queue)s)
        AND (%(name)s::text IS NULL OR x.name = %(name)s)
        AND (%(status)s::text IS NULL OR x.status = %(status)s)
    ORDER BY x.id DESC
    LIMIT %(limit)s
),

buried AS (
    SELECT x.*
    FROM (
        SELECT
            d.id,
            d.queue,
            d.name,
            'dead' AS status,
            d.attempt,
            d.priority,
            d.run_at,
            d.created_at,
            d.started_at,
            d.finished_at
        FROM pgtasks.dead_letters AS d
        WHERE d.id < %(before)s AND %(in_dead)s
        ORDER BY d.id DESC
        LIMIT %(scan)s
    ) AS x
    WHERE (%(queue)s::text IS NULL OR x.queue = %(queue)s)
        AND (%(name)s::text IS NULL OR x.name = %(name)s)
    ORDER BY x.id DESC
    LIMIT %(limit)s
)

SELECT * FROM live
UNION ALL
SELECT * FROM finished
UNION ALL
SELECT * FROM buried
ORDER BY id DESC
LIMIT %(limit)s
