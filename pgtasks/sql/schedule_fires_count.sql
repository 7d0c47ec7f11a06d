-- Counts what became of the slots of the last day, of all schedules together: what `status` says.
--
-- Parameter: limit. Returns one row: fired, missed, skipped, late_s (how late the latest fire was;
-- NULL when none fired; what a person backfilled is old and not late), since (when the count
-- begins), limited (whether it is for the latest `limit` slots, which do not reach back a day).
-- Index: schedule_fires_fire_time, backward, never more than `limit` rows of it.
WITH latest AS MATERIALIZED (
    SELECT f.fire_time, f.fired_at, f.outcome, f.backfilled
    FROM pgtasks.schedule_fires AS f
    WHERE f.fire_time > statement_timestamp() - interval '1 day' AND f.fire_time <= statement_timestamp()
    ORDER BY f.fire_time DESC
    LIMIT %(limit)s
)

SELECT
    count(*) FILTER (WHERE l.outcome = 'fired') AS fired,
    count(*) FILTER (WHERE l.outcome = 'missed') AS missed,
    count(*) FILTER (WHERE l.outcome = 'skipped_overlap') AS skipped,
    extract(
        EPOCH FROM max(l.fired_at - l.fire_time) FILTER (WHERE l.outcome = 'fired' AND NOT l.backfilled)
    )::double precision AS late_s,
    CASE
        WHEN count(*) = %(limit)s THEN min(l.fire_time)
        ELSE statement_timestamp() - interval '1 day'
    END AS since,
    count(*) = %(limit)s AS limited
FROM latest AS l
