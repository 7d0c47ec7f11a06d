-- Counts the attempts that did not succeed between two moments, by queue, up to a limit of rows in all.
--
-- Parameters: since, until, limit. Returns queue, failed, and the first and last finished_at
-- among the rows counted, for a rate when the limit ends the count.
-- Index: attempts_finished_at (BRIN): attempts are appended, so the newest pages lie together.
SELECT
    x.queue,
    count(*) AS failed,
    min(x.finished_at) AS first_at,
    max(x.finished_at) AS last_at
FROM (
    SELECT a.queue, a.finished_at
    FROM pgtasks.attempts AS a
    WHERE a.finished_at >= %(since)s AND a.finished_at < %(until)s
    LIMIT %(limit)s
) AS x
GROUP BY x.queue
