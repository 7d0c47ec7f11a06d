-- Forgets fires older than the retention, a bounded batch at a time; never those that
-- a catch-up may still ask about, which begins at the next fire or a month before it.
--
-- Parameters: keep_days; limit. Returns one row: pruned (a count).
-- Index: schedule_fires_fire_time, then the rows' places. They are locked here, so none moves; one
-- that a backfill changed after this statement's snapshot is not found at its new place, and stays
-- for the next time. SKIP LOCKED: several workers prune side by side.
WITH old AS (
    SELECT f.ctid AS place
    FROM pgtasks.schedule_fires AS f
    WHERE f.fire_time < clock_timestamp() - make_interval(days => %(keep_days)s)
        AND f.fire_time < coalesce(
            (SELECT coalesce(s.next_fire, s.planned_from) FROM pgtasks.schedules AS s WHERE s.name = f.schedule),
            'infinity'
        ) - make_interval(days => %(keep_days)s)
    ORDER BY f.fire_time
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
),

gone AS (
    DELETE FROM pgtasks.schedule_fires AS f
    WHERE f.ctid = ANY(array(SELECT o.place FROM old AS o))
    RETURNING f.schedule
)

SELECT count(*) AS pruned FROM gone
