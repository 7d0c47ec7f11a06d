-- Lists a task's attempts that did not end in success, oldest first.
--
-- Parameters: id, limit (the newest are kept). Returns AttemptRow. A task that was replayed
-- from the dead letters may have several first attempts.
-- Index: attempts_task_id of every partition.
SELECT * FROM (
    SELECT
        a.attempt,
        a.outcome,
        a.error_class,
        a.error,
        a.traceback,
        a.started_at,
        a.finished_at,
        a.worker_id,
        w.name AS worker
    FROM pgtasks.attempts AS a
    LEFT JOIN pgtasks.workers AS w ON a.worker_id = w.id
    WHERE a.task_id = %(id)s
    ORDER BY a.finished_at DESC, a.attempt DESC
    LIMIT %(limit)s
) AS x
ORDER BY finished_at, attempt
