-- Lists what became of a schedule's fire times, the latest first, and of the tasks they made.
--
-- Parameters: name; limit. Returns FireRow; `status` is NULL when the task is forgotten already,
-- `lateness_s` for what a person backfilled.
-- Index: schedule_fires_pkey; tasks_pkey, history_id of every partition, dead_letters_pkey.
SELECT
    f.fire_time,
    f.outcome,
    f.task_id,
    f.fired_at,
    f.backfilled,
    CASE WHEN NOT f.backfilled THEN extract(EPOCH FROM f.fired_at - f.fire_time) END::double precision AS lateness_s,
    (SELECT a.status FROM pgtasks.all_tasks AS a WHERE a.id = f.task_id) AS status
FROM pgtasks.schedule_fires AS f
WHERE f.schedule = %(name)s
ORDER BY f.fire_time DESC
LIMIT %(limit)s
