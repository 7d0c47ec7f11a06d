-- Counts the attempts whose worker was lost, in a period before now.
--
-- Parameters: period_s; limit (counted up to it). Returns attempts and the name with the most.
-- Index: attempts_finished_at (brin) of the partitions that the period touches.
SELECT
    count(*) AS lost,
    mode() WITHIN GROUP (ORDER BY a.name) AS most
FROM (
    SELECT x.name
    FROM pgtasks.attempts AS x
    WHERE x.finished_at > clock_timestamp() - make_interval(secs => %(period_s)s) AND x.outcome = 'worker_lost'
    LIMIT %(limit)s
) AS a
