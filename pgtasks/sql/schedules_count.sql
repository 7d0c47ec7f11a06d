-- Counts the schedules and says when the next one fires: what `status` shows of them.
--
-- Parameters: overdue_s (after how many seconds a due schedule counts as overdue); limit.
-- Returns one row: total, enabled, overdue, problems, next_fire. At most `limit` schedules are
-- looked at; payloads are not read.
SELECT
    count(*) AS total,
    count(*) FILTER (WHERE s.enabled) AS enabled,
    count(*) FILTER (
        WHERE s.enabled AND s.problem IS NULL
        AND coalesce(s.next_fire, s.planned_from) < statement_timestamp() - make_interval(secs => %(overdue_s)s)
    ) AS overdue,
    count(*) FILTER (WHERE s.problem IS NOT NULL) AS problems,
    min(s.next_fire) FILTER (WHERE s.enabled) AS next_fire
FROM (
    SELECT x.enabled, x.next_fire, x.planned_from, x.problem
    FROM pgtasks.schedules AS x
    LIMIT %(limit)s
) AS s
