-- Enqueues a schedule's task now, outside its plan: no fire row, and the next fire stays as it is.
--
-- Parameter: name. Returns one row: id (NULL when the overlap policy forbids it), living (the task
-- that is in the way); none when there is no such schedule.
-- Index: schedules_pkey, task_types_pkey, tasks_unique_key. Overlap "skip" is the unique_key that
-- fires use as well: what a person starts and what the plan starts do not overlap either.
WITH chosen AS MATERIALIZED (
    SELECT
        s.name, s.task, s.payload,
        coalesce(s.queue, k.queue, 'default') AS queue,
        coalesce(s.priority, k.priority, 0) AS priority,
        CASE WHEN s.overlap = 'skip' THEN 'schedule:' || s.name END AS unique_key
    FROM pgtasks.schedules AS s
    LEFT JOIN pgtasks.task_types AS k ON s.task = k.name
    WHERE s.name = %(name)s
),

added AS (
    INSERT INTO pgtasks.tasks AS t (name, payload, queue, priority, unique_key, headers)
    SELECT
        c.task, c.payload, c.queue, c.priority, c.unique_key, jsonb_build_object('pgtasks.schedule', c.name)
    FROM chosen AS c
    ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL DO NOTHING
    RETURNING t.id
)

SELECT
    (SELECT a.id FROM added AS a) AS id,
    (SELECT t.id FROM pgtasks.tasks AS t WHERE t.unique_key = c.unique_key) AS living
FROM chosen AS c
