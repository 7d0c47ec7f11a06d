-- Cancels one batch of the live tasks that some filters match.
--
-- Parameters: after (the last id of the batch before), until (no higher ids), scan (rows looked at),
-- limit; queue, name, status (NULL for any), is_running (running tasks instead of waiting ones).
-- Returns one row: last_id (NULL when none was left to look at), matched, cancelled, requested.
-- Index: tasks_pkey in id order, at most `scan` rows of it, to which the filters apply: a rare name
-- does not make one statement read millions.
-- The public function does it, so that every way to cancel is the same. A task that somebody holds
-- at this moment (a claim, another cancel) is passed over, and counted as matched only. The rows
-- are locked in the order of their ids before the first is cancelled.
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

matched AS MATERIALIZED (
    SELECT s.id
    FROM seen AS s
    WHERE (s.status = 'running') = %(is_running)s
        AND (%(queue)s::text IS NULL OR s.queue = %(queue)s)
        AND (%(name)s::text IS NULL OR s.name = %(name)s)
        AND (%(status)s::text IS NULL OR s.status = %(status)s)
    ORDER BY s.id
    LIMIT %(limit)s
),

held AS MATERIALIZED (
    SELECT t.id
    FROM pgtasks.tasks AS t
    WHERE t.id = ANY(array(SELECT m.id FROM matched AS m)) AND (t.state = 'running') = %(is_running)s
    ORDER BY t.id
    FOR UPDATE OF t SKIP LOCKED
),

done AS MATERIALIZED (
    SELECT pgtasks.cancel(h.id) AS happened
    FROM held AS h
)

SELECT
    CASE
        WHEN (SELECT count(*) FROM matched) = %(limit)s THEN (SELECT max(m.id) FROM matched AS m)
        ELSE (SELECT max(s.id) FROM seen AS s)
    END AS last_id,
    (SELECT count(*) FROM matched) AS matched,
    (SELECT count(*) FROM done AS d WHERE d.happened = 'cancelled') AS cancelled,
    (SELECT count(*) FROM done AS d WHERE d.happened = 'requested') AS requested
