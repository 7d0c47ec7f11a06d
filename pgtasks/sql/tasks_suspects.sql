-- Counts the suspects, tasks whose process was lost the last time they ran, by queue and name.
--
-- Parameters: scan (suspects looked at), limit (rows returned). Returns queue, name, tasks, and
-- losses: the most times in a row that one of them lost its process.
-- Index: tasks_suspects, whose order keeps the planner from reading the table instead.
SELECT
    s.queue,
    s.name,
    count(*) AS tasks,
    max(s.losses) AS losses
FROM (
    SELECT t.queue, t.name, t.losses
    FROM pgtasks.tasks AS t
    WHERE t.losses > 0
    ORDER BY t.queue, t.priority DESC, t.run_at, t.id
    LIMIT %(scan)s
) AS s
GROUP BY s.queue, s.name
ORDER BY s.queue, s.name
LIMIT %(limit)s
