-- Counts what was completed between two moments, by queue, up to a limit of rows in all.
--
-- Parameters: since, until, limit. Returns queue, completed, and the first and last finished_at
-- among the rows counted, for a rate when the limit ends the count.
-- Index: history_finished_at (BRIN): finished rows are appended, so the newest pages lie together.
SELECT
    x.queue,
    count(*) AS completed,
    min(x.finished_at) AS first_at,
    max(x.finished_at) AS last_at
FROM (
    SELECT h.queue, h.finished_at
    FROM pgtasks.history AS h
    WHERE h.finished_at >= %(since)s AND h.finished_at < %(until)s AND h.status = 'completed'
    LIMIT %(limit)s
) AS x
GROUP BY x.queue
