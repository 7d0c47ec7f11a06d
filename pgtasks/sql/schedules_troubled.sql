-- Finds the schedules that deserve a look: flagged, overdue, or with a task that nobody runs.
--
-- Parameters: overdue_s; limit (findings of each kind); scan (how many schedules are looked at);
-- named (how many schedules of an unknown task are named).
-- Returns rows: kind (problem, overdue, unplanned or unknown_task), name, task, problem, since, names,
-- schedules (a count). Unplanned is one that no scheduler has looked at since it was made or
-- changed. An unknown task is one finding, however many schedules have it: names are the first of
-- these. The longest overdue come first. Tasks count as known when a live worker has them; while no
-- worker is alive, which `status` says anyway, when any has ever registered them. Payloads are not
-- read.
WITH looked AS MATERIALIZED (
    SELECT x.name, x.task, x.problem, coalesce(x.next_fire, x.planned_from) AS due, x.next_fire IS NULL AS unplanned
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
    SELECT
        'problem' AS kind, s.name, s.task, s.problem, NULL::timestamptz AS since, ARRAY[s.name] AS names, 1 AS schedules
    FROM looked AS s
    WHERE s.problem IS NOT NULL
    ORDER BY s.name
    LIMIT %(limit)s
)
UNION ALL
(
    SELECT
        CASE WHEN s.unplanned THEN 'unplanned' ELSE 'overdue' END AS kind, s.name, s.task, NULL AS problem,
        s.due AS since, ARRAY[s.name] AS names, 1 AS schedules
    FROM looked AS s
    WHERE s.problem IS NULL AND s.due < statement_timestamp() - make_interval(secs => %(overdue_s)s)
    ORDER BY s.due, s.name
    LIMIT %(limit)s
)
UNION ALL
(
    SELECT
        'unknown_task' AS kind, min(s.name) AS name, s.task, NULL AS problem, NULL::timestamptz AS since,
        array_agg(s.name ORDER BY s.name) FILTER (WHERE s.place <= %(named)s) AS names, count(*)::integer AS schedules
    FROM (
        SELECT l.name, l.task, row_number() OVER (PARTITION BY l.task ORDER BY l.name) AS place
        FROM looked AS l
        WHERE l.task NOT IN (SELECT k.name FROM known AS k)
    ) AS s
    GROUP BY s.task
    ORDER BY count(*) DESC, s.task
    LIMIT %(limit)s
)
