-- Lists schedules with what became of their fires within the last day, by name.
--
-- Parameter: limit. Returns ScheduleRow. Payloads are not read.
-- Index: schedules_pkey; schedule_fires_pkey, at most a thousand fires of each.
SELECT
    statement_timestamp() AS now,
    v.name,
    v.expression,
    v.timezone,
    v.seconds,
    v.task,
    v.queue,
    v.enabled,
    v.source,
    v.deployment,
    v.next_fire,
    v.last_fire,
    extract(EPOCH FROM v.overdue)::double precision AS overdue_s,
    extract(EPOCH FROM v.lateness)::double precision AS lateness_s,
    v.fired,
    v.missed_fires,
    v.skipped,
    v.problem
FROM pgtasks.schedule_stats AS v
ORDER BY v.name
LIMIT %(limit)s
