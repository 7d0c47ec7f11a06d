-- Reads the failed attempts of one queue's tasks from an id on: the demo looks at its own.
--
-- Parameters: queue; first_id. Returns the columns of DemoAttempt, by task and attempt.
-- Index: attempts_task_id.
SELECT
    a.task_id,
    a.attempt,
    a.outcome,
    a.worker_id,
    a.error_class,
    a.error
FROM pgtasks.attempts AS a
WHERE a.queue = %(queue)s AND a.task_id >= %(first_id)s
ORDER BY a.task_id, a.attempt
