-- Fires due schedules: the fire rows, the tasks and the next fire times, all in one statement.
--
-- Parameters: plans, as arrays of one length: names, planned_froms, expected (the next_fire the
-- plan was made from, NULL when there was none), nexts (the new one); slots, as arrays of one
-- length: slot_names, slot_times, slot_outcomes ('fired' or 'missed'), slot_jitters (seconds);
-- and locked (whether to leave alone what another scheduler is firing at this moment).
-- Returns one row: schedules (how many plans were carried out), fired, skipped, missed (slots),
-- busy (plans that somebody else held the lock of).
-- Index: schedules_pkey, schedule_fires_pkey, tasks_unique_key.
--
-- Exactly once. The primary key (schedule, fire_time) decides: a slot that has a row is not in
-- `slots`, and two statements that both missed the other's row collide on it, so that one is
-- rolled back whole and tried again. Fire row and task come from one statement: there is never
-- one without the other. The plan is carried out only if the schedule is still as it was read
-- (planned_from, next_fire, enabled): an edit, a deletion, or another scheduler that was faster
-- makes it void.
-- The advisory lock only saves work. Whoever holds it may be a stranger, so a plan that found it
-- taken is tried again without it (pgtasks/engine/scheduler.py). There are 256 of them, however many
-- schedules there are: the server's table of locks is shared by all its sessions, and small.
-- 7074619 is the namespace of schedules within the 64-bit advisory keys.
-- Overlap "skip" is a unique_key: the living task of the schedule keeps the next one out, by the
-- same index as everywhere, and the slot is recorded as skipped.
WITH plan AS (
    SELECT p.name, p.planned_from, p.expected, p.next_fire
    FROM unnest(
        %(names)s::text[], %(planned_froms)s::timestamptz[], %(expected)s::timestamptz[], %(nexts)s::timestamptz[]
    ) AS p (name, planned_from, expected, next_fire)
),

free AS MATERIALIZED (
    SELECT p.name, p.planned_from, p.expected, p.next_fire
    FROM plan AS p
    WHERE NOT %(locked)s OR pg_try_advisory_xact_lock((7074619::bigint << 32) | (hashtextextended(p.name, 0) & 255))
),

mine AS MATERIALIZED (
    SELECT
        s.name, s.task, s.payload, s.overlap, p.next_fire,
        coalesce(s.queue, k.queue, 'default') AS queue,
        coalesce(s.priority, k.priority, 0) AS priority
    FROM free AS p
    INNER JOIN pgtasks.schedules AS s
        ON p.name = s.name AND p.planned_from = s.planned_from AND s.enabled
        AND p.expected IS NOT DISTINCT FROM s.next_fire
    LEFT JOIN pgtasks.task_types AS k ON s.task = k.name
    ORDER BY s.name
    FOR NO KEY UPDATE OF s SKIP LOCKED
),

slots AS MATERIALIZED (
    SELECT
        m.name, m.task, m.payload, m.queue, m.priority, m.overlap, f.fire_time, f.outcome, f.jitter_s,
        CASE WHEN f.outcome = 'fired' THEN nextval('pgtasks.tasks_id_seq') END AS task_id
    FROM unnest(
        %(slot_names)s::text[], %(slot_times)s::timestamptz[], %(slot_outcomes)s::text[],
        %(slot_jitters)s::double precision[]
    ) AS f (name, fire_time, outcome, jitter_s)
    INNER JOIN mine AS m ON f.name = m.name
    WHERE NOT EXISTS (
        -- OFFSET keeps this a look by the primary key for each slot, whatever the planner believes.
        SELECT FROM pgtasks.schedule_fires AS x WHERE x.schedule = f.name AND x.fire_time = f.fire_time OFFSET 0
    )
    ORDER BY m.name, f.fire_time
),

added AS (
    INSERT INTO pgtasks.tasks (id, name, payload, queue, priority, run_at, unique_key, headers)
    OVERRIDING SYSTEM VALUE
    SELECT
        s.task_id, s.task, s.payload, s.queue, s.priority,
        greatest(clock_timestamp(), s.fire_time + make_interval(secs => s.jitter_s)),
        CASE WHEN s.overlap = 'skip' THEN 'schedule:' || s.name END,
        jsonb_build_object('pgtasks.schedule', s.name, 'pgtasks.fire_time', s.fire_time)
    FROM slots AS s
    WHERE s.outcome = 'fired'
    ORDER BY s.name, s.fire_time
    ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL DO NOTHING
    RETURNING id
),

fires AS (
    INSERT INTO pgtasks.schedule_fires (schedule, fire_time, task_id, outcome)
    SELECT
        s.name,
        s.fire_time,
        a.id,
        CASE
            WHEN s.outcome = 'missed' THEN 'missed'
            WHEN a.id IS NULL THEN 'skipped_overlap'
            ELSE 'fired'
        END
    FROM slots AS s
    LEFT JOIN added AS a ON s.task_id = a.id
    RETURNING schedule, fire_time, outcome
),

last_slots AS (
    SELECT f.name, max(f.fire_time) AS fire_time FROM slots AS f WHERE f.outcome = 'fired' GROUP BY f.name
),

moved AS (
    UPDATE pgtasks.schedules AS s
    SET
        next_fire = m.next_fire,
        last_fire = coalesce(f.fire_time, s.last_fire),
        problem = NULL,
        problem_at = NULL
    FROM mine AS m
    LEFT JOIN last_slots AS f ON m.name = f.name
    WHERE s.name = m.name
    RETURNING s.name
)

SELECT
    (SELECT count(*) FROM moved) AS schedules,
    (SELECT count(*) FROM fires AS f WHERE f.outcome = 'fired') AS fired,
    (SELECT count(*) FROM fires AS f WHERE f.outcome = 'skipped_overlap') AS skipped,
    (SELECT count(*) FROM fires AS f WHERE f.outcome = 'missed') AS missed,
    (SELECT count(*) FROM plan) - (SELECT count(*) FROM free) AS busy
