-- Reads everything about one schedule.
--
-- Parameter: name. Returns ScheduleDetails, or no row. The payload as text: PostgreSQL keeps JSON
-- that Python cannot read.
-- Index: schedules_pkey; schedule_fires_pkey, at most a thousand fires.
SELECT
    statement_timestamp() AS now,
    s.name,
    s.expression,
    s.timezone,
    s.seconds,
    s.task,
    s.payload::text AS payload,
    s.queue,
    s.priority,
    s.enabled,
    s.missed,
    s.missed_max,
    s.overlap,
    extract(EPOCH FROM s.jitter)::double precision AS jitter_s,
    s.source,
    s.deployment,
    s.planned_from,
    s.next_fire,
    s.last_fire,
    s.problem,
    s.created_at,
    s.updated_at,
    extract(EPOCH FROM v.overdue)::double precision AS overdue_s,
    extract(EPOCH FROM v.lateness)::double precision AS lateness_s,
    v.fired,
    v.missed_fires,
    v.skipped
FROM pgtasks.schedules AS s
INNER JOIN pgtasks.schedule_stats AS v ON s.name = v.name
WHERE s.name = %(name)s
