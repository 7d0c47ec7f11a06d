-- Finds the schedules that deserve a look: flagged, overdue, or with a task that nobody runs.
--
-- Parameters: overdue_s; limit (findings of each kind); scan (how many schedules are looked at).
-- Returns rows: kind (problem, overdue or unknown_task), name, task, problem, since. The longest
-- overdue come first. Names count as known when a live worker has them; while no worker is alive,
-- which `status` says anyway, when any has ever registered them. Payloads are not read.
WITH looked AS MATERIALIZED (
    SELECT x.name, x.task, x.problem, coalesce(x.next_fire, x.planned_from) AS due
    FROM pgtasks.schedules AS x
    WHERE x.enabled
    LIMIT %(scan)s
),

known AS MATERIALIZED (
    SELECT unnest(w.names) AS name
    FROM pgtasks.worker_stats AS w
    WHERE w.alive
    UNION
    SELECT k.name
    FROM pgtasks.task_types AS k
    WHERE NOT EXISTS (SELECT FROM pgtasks.worker_stats AS w WHERE w.alive)
)

(
    SELECT 'problem' AS kind, s.name, s.task, s.problem, NULL::timestamptz AS since
    FROM looked AS s
    WHERE s.problem IS NOT NULL
    ORDER BY s.name
    LIMIT %(limit)s
)
UNION ALL
(
    SELECT 'overdue' AS kind, s.name, s.task, NULL AS problem, s.due AS since
    FROM looked AS s
    WHERE s.problem IS NULL AND s.due < statement_timestamp() - make_interval(secs => %(overdue_s)s)
    ORDER BY s.due, s.name
    LIMIT %(limit)s
)
UNION ALL
(
    SELECT 'unknown_task' AS kind, s.name, s.task, NULL AS problem, NULL::timestamptz AS since
    FROM looked AS s
    WHERE s.task NOT IN (SELECT k.name FROM known AS k)
    ORDER BY s.name
    LIMIT %(limit)s
)
