-- Takes 0004_backfills back: a backfill looks like any fire.
CREATE OR REPLACE VIEW pgtasks.schedule_stats AS
SELECT
    s.name,
    s.expression,
    s.timezone,
    s.seconds,
    s.task,
    s.queue,
    s.priority,
    s.enabled,
    s.missed,
    s.missed_max,
    s.overlap,
    s.jitter,
    s.source,
    s.deployment,
    s.next_fire,
    s.last_fire,
    s.problem,
    greatest(interval '0', statement_timestamp() - s.next_fire) AS overdue,
    f.lateness,
    f.fired,
    f.missed_fires,
    f.skipped
FROM pgtasks.schedules AS s
CROSS JOIN LATERAL (
    -- The last day, at most a thousand fires.
    SELECT
        count(*) FILTER (WHERE x.outcome = 'fired') AS fired,
        count(*) FILTER (WHERE x.outcome = 'missed') AS missed_fires,
        count(*) FILTER (WHERE x.outcome = 'skipped_overlap') AS skipped,
        (array_agg(x.fired_at - x.fire_time ORDER BY x.fire_time DESC) FILTER (WHERE x.outcome = 'fired'))[1]
            AS lateness
    FROM (
        SELECT y.outcome, y.fired_at, y.fire_time
        FROM pgtasks.schedule_fires AS y
        WHERE y.schedule = s.name AND y.fire_time > statement_timestamp() - interval '1 day'
        ORDER BY y.fire_time DESC
        LIMIT 1000
    ) AS x
) AS f;

DROP TRIGGER schedules_announced ON pgtasks.schedules;
CREATE TRIGGER schedules_announced
AFTER INSERT OR UPDATE OF expression, timezone, seconds, enabled ON pgtasks.schedules
FOR EACH STATEMENT EXECUTE FUNCTION pgtasks.schedules_announced();

ALTER TABLE pgtasks.schedule_fires DROP COLUMN backfilled;
