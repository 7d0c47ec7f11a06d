-- 0004_backfills: which fires a person asked for, and schedulers that are woken only by changes.
--
-- Locks: the column has a constant default, so no row is rewritten; view and trigger are replaced
-- in place. It only needs its locks for a moment.

-- True for the fire of a backfill: it is as old as a person wanted it, and nobody was late.
ALTER TABLE pgtasks.schedule_fires ADD COLUMN backfilled boolean NOT NULL DEFAULT false;

-- As before, but not for a statement that changes no row: a worker that starts and finds its
-- schedules as they should be wakes nobody. Equal notifications of a transaction are sent once.
DROP TRIGGER schedules_announced ON pgtasks.schedules;
CREATE TRIGGER schedules_announced
AFTER INSERT OR UPDATE OF expression, timezone, seconds, enabled ON pgtasks.schedules
FOR EACH ROW EXECUTE FUNCTION pgtasks.schedules_announced();

-- As before, but lateness is that of the last fire, `last_fire`, on whichever day that was: the
-- schedulers set it, a backfill does not.
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
    (
        SELECT z.fired_at - z.fire_time
        FROM pgtasks.schedule_fires AS z
        WHERE z.schedule = s.name AND z.fire_time = s.last_fire AND z.outcome = 'fired'
    ) AS lateness,
    f.fired,
    f.missed_fires,
    f.skipped
FROM pgtasks.schedules AS s
CROSS JOIN LATERAL (
    -- The last day, at most a thousand fires.
    SELECT
        count(*) FILTER (WHERE x.outcome = 'fired') AS fired,
        count(*) FILTER (WHERE x.outcome = 'missed') AS missed_fires,
        count(*) FILTER (WHERE x.outcome = 'skipped_overlap') AS skipped
    FROM (
        SELECT y.outcome
        FROM pgtasks.schedule_fires AS y
        WHERE y.schedule = s.name AND y.fire_time > statement_timestamp() - interval '1 day'
        ORDER BY y.fire_time DESC
        LIMIT 1000
    ) AS x
) AS f;
