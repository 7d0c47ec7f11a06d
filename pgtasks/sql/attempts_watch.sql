-- Lists the latest attempts that did not succeed since a moment, newest first: what a live view shows.
--
-- Parameters: since; scan (attempts looked at: with more, those that ended first); limit. Returns
-- FailureRow, of the error its beginning only.
-- Index: attempts_finished_at (BRIN): attempts are appended, so the newest pages lie together.
SELECT
    x.task_id,
    x.attempt,
    x.lease_id,
    x.queue,
    x.name,
    x.outcome,
    x.error_class,
    left(x.error, 300) AS error,
    x.finished_at
FROM (
    SELECT a.task_id, a.attempt, a.lease_id, a.queue, a.name, a.outcome, a.error_class, a.error, a.finished_at
    FROM pgtasks.attempts AS a
    WHERE a.finished_at >= %(since)s
    LIMIT %(scan)s
) AS x
ORDER BY x.finished_at DESC, x.task_id DESC, x.attempt DESC
LIMIT %(limit)s
