-- Reads everything about one task, wherever it is stored.
--
-- Parameter: id. Returns TaskDetails, or no row. Payload, result and headers as text: PostgreSQL
-- keeps JSON that Python cannot read.
-- Index: tasks_pkey, history_id of every partition, dead_letters_pkey, leases_pkey, workers_pkey, task_types_pkey.
SELECT
    a.id,
    a.queue,
    a.name,
    a.status,
    a.payload::text AS payload,
    a.result::text AS result,
    a.attempt,
    a.max_attempts,
    a.priority,
    a.run_at,
    a.created_at,
    a.started_at,
    a.finished_at,
    a.error,
    d.error_class,
    d.traceback,
    d.reason,
    extract(EPOCH FROM coalesce(t.timeout, d.timeout))::double precision AS timeout_s,
    a.unique_key,
    a.headers::text AS headers,
    t.cancel_requested_at,
    a.worker AS worker_id,
    w.name AS worker,
    tt.max_attempts AS handler_max_attempts,
    extract(EPOCH FROM tt.timeout)::double precision AS handler_timeout_s,
    coalesce(t.losses, 0) AS losses
FROM pgtasks.all_tasks AS a
LEFT JOIN pgtasks.tasks AS t ON a.id = t.id
LEFT JOIN pgtasks.dead_letters AS d ON a.id = d.id
LEFT JOIN pgtasks.workers AS w ON a.worker = w.id
LEFT JOIN pgtasks.task_types AS tt ON a.name = tt.name
WHERE a.id = %(id)s
