-- Fires past slots of a schedule: fire rows and tasks in one statement, each slot once.
--
-- Parameters: name; plan (planned_from of the plan the slots were computed by: an edit or removal meanwhile
-- makes them void); fire_times; also_missed (also slots that are recorded as missed).
-- Returns one row: fired (a count); none when the schedule was changed meanwhile.
-- Index: schedules_pkey, task_types_pkey, schedule_fires_pkey. The fire row goes in first, and its
-- primary key says who fires a slot: another backfill, a scheduler or this statement.
-- It is marked as a backfill: nobody was late.
-- No unique_key: who asks for the fires of a week wants all of them (`schedules backfill` refuses a
-- schedule whose fires must not overlap).
WITH chosen AS MATERIALIZED (
    SELECT
        s.name, s.task, s.payload,
        coalesce(s.queue, k.queue, 'default') AS queue,
        coalesce(s.priority, k.priority, 0) AS priority
    FROM pgtasks.schedules AS s
    LEFT JOIN pgtasks.task_types AS k ON s.task = k.name
    WHERE s.name = %(name)s AND s.planned_from = %(plan)s
),

slots AS MATERIALIZED (
    SELECT c.name, f.fire_time, nextval('pgtasks.tasks_id_seq') AS task_id
    FROM unnest(%(fire_times)s::timestamptz[]) AS f (fire_time)
    CROSS JOIN chosen AS c
    ORDER BY f.fire_time
),

fires AS (
    INSERT INTO pgtasks.schedule_fires AS x (schedule, fire_time, task_id, outcome, backfilled)
    SELECT s.name, s.fire_time, s.task_id, 'fired', true
    FROM slots AS s
    ON CONFLICT (schedule, fire_time) DO UPDATE SET
        task_id = excluded.task_id,
        outcome = excluded.outcome,
        backfilled = excluded.backfilled,
        fired_at = clock_timestamp()
    WHERE x.outcome = 'missed' AND %(also_missed)s
    RETURNING x.schedule, x.fire_time, x.task_id
),

added AS (
    INSERT INTO pgtasks.tasks AS t (id, name, payload, queue, priority, headers)
    OVERRIDING SYSTEM VALUE
    SELECT
        f.task_id, c.task, c.payload, c.queue, c.priority,
        jsonb_build_object('pgtasks.schedule', f.schedule, 'pgtasks.fire_time', f.fire_time)
    FROM fires AS f
    INNER JOIN chosen AS c ON f.schedule = c.name
    ORDER BY f.fire_time
    RETURNING t.id
)

SELECT (SELECT count(*) FROM added) AS fired
FROM chosen
