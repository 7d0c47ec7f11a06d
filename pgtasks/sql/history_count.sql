-- Counts what was completed lately, by queue, up to a limit of rows in all.
--
-- Parameters: period_s, how far back to look; limit. Returns queue, completed, and the first and
-- last finished_at among the rows counted, for a rate when the limit ends the count.
-- Index: history_finished_at (BRIN): finished rows are appended, so the period's pages lie together.
SELECT
    x.queue,
    count(*) AS completed,
    min(x.finished_at) AS first_at,
    max(x.finished_at) AS last_at
FROM (
    SELECT h.queue, h.finished_at
    FROM pgtasks.history AS h
    WHERE h.finished_at >= statement_timestamp() - make_interval(secs => %(period_s)s) AND h.status = 'completed'
    LIMIT %(limit)s
) AS x
GROUP BY x.queue
