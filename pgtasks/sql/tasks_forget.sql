-- Deletes whatever there is of one queue from an id on, its workers with their leases, and the
-- schedule that has its name: the demo clears its own.
--
-- Parameters: queue, which nobody else uses; first_id, below which nothing is of it. Returns one row:
-- how many tasks were deleted, wherever they were stored.
-- Index: tasks_pkey, history_id and dead_letters_pkey, each from first_id on; attempts_task_id;
-- workers and leases are small.
WITH live AS (
    DELETE FROM pgtasks.tasks AS t
    WHERE t.queue = %(queue)s AND t.id >= %(first_id)s
    RETURNING t.id
),

finished AS (
    DELETE FROM pgtasks.history AS h
    WHERE h.queue = %(queue)s AND h.id >= %(first_id)s
    RETURNING h.id
),

dead AS (
    DELETE FROM pgtasks.dead_letters AS d
    WHERE d.queue = %(queue)s AND d.id >= %(first_id)s
    RETURNING d.id
),

failed AS (
    DELETE FROM pgtasks.attempts AS a
    WHERE a.queue = %(queue)s AND a.task_id >= %(first_id)s
),

gone AS (
    DELETE FROM pgtasks.workers AS w
    WHERE w.queues = ARRAY[%(queue)s::text]
    RETURNING w.id
),

released AS (
    DELETE FROM pgtasks.leases AS l
    USING gone AS g
    WHERE l.worker_id = g.id
),

unscheduled AS (
    DELETE FROM pgtasks.schedules AS s
    WHERE s.name = %(queue)s
),

unfired AS (
    DELETE FROM pgtasks.schedule_fires AS f
    WHERE f.schedule = %(queue)s
)

SELECT
    (SELECT count(*) FROM live)
    + (SELECT count(*) FROM finished)
    + (SELECT count(*) FROM dead) AS deleted
