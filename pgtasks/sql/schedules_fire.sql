-- Fires due schedules: the fire rows, the tasks and the next fire times, all in one statement.
--
-- Parameters: plans, as arrays of one length: names, planned_froms, expected (the next_fire the
-- plan was made from, NULL when there was none), nexts (the new one), slot_firsts and slot_lasts
-- (where the plan's slots are in the other
-- arrays, counted from one); slots: slot_times, slot_fires (false: missed), slot_jitters (seconds);
-- locked (whether to leave alone what another scheduler is firing at this moment); and wait_ms (how
-- long to wait for a lock, that of a unique key in flight above all).
-- Returns one row: schedules (how many plans were carried out), fired, skipped, missed (slots),
-- busy (plans that somebody else held the lock of), late_s (how late the latest of those that fired
-- was, by the database's clock; 0 when none did).
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
-- No join of two lists: their lengths are not known when this is planned, and a nested loop over
-- thousands of each takes seconds. For the same reason each plan looks for its schedule by LATERAL
-- (docs/adr/0002-plans-that-do-not-flip.md), and asks for `enabled IS NOT false`: that does not imply the
-- predicate of schedules_due, which would be read whole where it is believed to be small.
WITH plan AS (
    SELECT p.*
    FROM unnest(
        %(names)s::text[], %(planned_froms)s::timestamptz[], %(expected)s::timestamptz[], %(nexts)s::timestamptz[],
        %(slot_firsts)s::integer[], %(slot_lasts)s::integer[]
    ) AS p (name, planned_from, expected, next_fire, slot_first, slot_last)
    WHERE (SELECT set_config('lock_timeout', %(wait_ms)s::text, true)) IS NOT NULL
),

free AS MATERIALIZED (
    SELECT p.*
    FROM plan AS p
    WHERE NOT %(locked)s OR pg_try_advisory_xact_lock((7074619::bigint << 32) | (hashtextextended(p.name, 0) & 255))
),

mine AS MATERIALIZED (
    SELECT
        s.name, s.task, s.payload, s.overlap, p.next_fire, p.slot_first, p.slot_last,
        coalesce(s.queue, k.queue, 'default') AS queue,
        coalesce(s.priority, k.priority, 0) AS priority
    FROM free AS p
    CROSS JOIN LATERAL (
        SELECT r.name, r.task, r.payload, r.overlap, r.queue, r.priority
        FROM pgtasks.schedules AS r
        WHERE r.name = p.name
            AND r.planned_from = p.planned_from
            AND r.enabled IS NOT false
            AND p.expected IS NOT DISTINCT FROM r.next_fire
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS s
    LEFT JOIN pgtasks.task_types AS k ON s.task = k.name
),

slots AS MATERIALIZED (
    SELECT
        m.name, m.task, m.payload, m.queue, m.priority, m.overlap, f.fire_time, f.jitter_s,
        CASE WHEN f.fires THEN nextval('pgtasks.tasks_id_seq') END AS task_id
    FROM mine AS m
    CROSS JOIN LATERAL unnest(
        (%(slot_times)s::timestamptz[])[m.slot_first:m.slot_last],
        (%(slot_fires)s::boolean[])[m.slot_first:m.slot_last],
        (%(slot_jitters)s::double precision[])[m.slot_first:m.slot_last]
    ) AS f (fire_time, fires, jitter_s)
    WHERE NOT EXISTS (
        -- OFFSET keeps this a look by the primary key for each slot, whatever the planner believes.
        SELECT FROM pgtasks.schedule_fires AS x WHERE x.schedule = m.name AND x.fire_time = f.fire_time OFFSET 0
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
    WHERE s.task_id IS NOT NULL
    ORDER BY s.name, s.fire_time
    ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL DO NOTHING
    RETURNING id
),

results AS (
    SELECT
        s.name,
        s.fire_time,
        s.task_id,
        CASE
            WHEN s.task_id IS NULL THEN 'missed'
            WHEN s.task_id IN (SELECT a.id FROM added AS a) THEN 'fired'
            ELSE 'skipped_overlap'
        END AS outcome
    FROM slots AS s
),

fires AS (
    INSERT INTO pgtasks.schedule_fires (schedule, fire_time, task_id, outcome)
    SELECT r.name, r.fire_time, CASE WHEN r.outcome = 'fired' THEN r.task_id END, r.outcome
    FROM results AS r
    RETURNING outcome, fired_at - fire_time AS lateness
),

-- As one object, for a look by name instead of a join.
lasts AS MATERIALIZED (
    SELECT jsonb_object_agg(x.name, x.fire_time) AS by_name
    FROM (
        SELECT r.name, max(r.fire_time) AS fire_time
        FROM results AS r
        WHERE r.outcome = 'fired'
        GROUP BY r.name
    ) AS x
),

moved AS (
    UPDATE pgtasks.schedules AS s
    SET
        next_fire = m.next_fire,
        last_fire = coalesce(((SELECT l.by_name FROM lasts AS l) ->> s.name)::timestamptz, s.last_fire),
        problem = NULL,
        problem_at = NULL
    FROM mine AS m
    WHERE s.name = ANY(ARRAY[m.name])
    RETURNING s.name
)

SELECT
    (SELECT count(*) FROM moved) AS schedules,
    (SELECT count(*) FROM fires AS f WHERE f.outcome = 'fired') AS fired,
    (SELECT count(*) FROM fires AS f WHERE f.outcome = 'skipped_overlap') AS skipped,
    (SELECT count(*) FROM fires AS f WHERE f.outcome = 'missed') AS missed,
    (SELECT count(*) FROM plan) - (SELECT count(*) FROM free) AS busy,
    coalesce(
        (SELECT extract(EPOCH FROM max(f.lateness)) FROM fires AS f WHERE f.outcome = 'fired'), 0
    )::double precision AS late_s
