-- Reads the tasks of one queue from an id on, wherever they are stored: the demo looks at its own.
--
-- Parameters: queue; first_id. Returns the columns of DemoTask, by id.
-- Index: tasks_pkey, history_id and dead_letters_pkey, each from first_id on.
SELECT
    a.id,
    a.name,
    a.status,
    a.attempt,
    a.started_at,
    a.finished_at,
    a.error,
    a.worker
FROM pgtasks.all_tasks AS a
WHERE a.queue = %(queue)s AND a.id >= %(first_id)s
ORDER BY a.id
