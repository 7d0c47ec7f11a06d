-- Reads which schedules are due or not planned yet, by one reading of the database's clock.
--
-- Parameters: limit; seed (differs from scheduler to scheduler, so that many of them that wake at
-- midnight begin with different schedules); left_names and left_plans (planned_from), of one length:
-- what this process cannot plan and leaves to others for a while.
-- Returns rows: now; next_at (when the first later one is due); and one schedule each, or a
-- single row without one.
-- Index: schedules_due. One that could not be fired is looked at again after a minute.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now),

due AS (
    SELECT s.*
    FROM (
        -- Not one condition with OR, for which the whole index would be read.
        SELECT * FROM pgtasks.schedules WHERE enabled AND next_fire IS NULL
        UNION ALL
        SELECT * FROM pgtasks.schedules WHERE enabled AND next_fire <= (SELECT c.now FROM clock AS c)
    ) AS s
    WHERE (
        s.problem_at IS NULL
        OR s.problem_at NOT BETWEEN (SELECT c.now FROM clock AS c) - interval '1 minute'
        AND (SELECT c.now FROM clock AS c)
    )
    AND (s.name, s.planned_from) NOT IN (
        SELECT l.name, l.planned_from
        FROM unnest(%(left_names)s::text[], %(left_plans)s::timestamptz[]) AS l (name, planned_from)
    )
    ORDER BY hashtextextended(s.name, %(seed)s)
    LIMIT %(limit)s
)

SELECT
    c.now,
    (
        SELECT min(s.next_fire) FROM pgtasks.schedules AS s
        WHERE s.enabled AND s.next_fire > (SELECT k.now FROM clock AS k)
    ) AS next_at,
    d.name,
    d.expression,
    d.timezone,
    d.seconds,
    d.missed,
    d.missed_max,
    extract(EPOCH FROM d.jitter)::double precision AS jitter_s,
    d.planned_from,
    d.next_fire,
    d.problem,
    d.last_fire,
    d.overlap
FROM clock AS c
LEFT JOIN due AS d ON true
