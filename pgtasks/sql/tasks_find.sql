-- Finds the living task that has a unique key.
--
-- Parameter: unique_key. Returns its id and the status shown to people, or no row.
-- Index: tasks_unique_key.
SELECT a.id, a.status
FROM pgtasks.tasks AS t
INNER JOIN pgtasks.all_tasks AS a ON t.id = a.id
WHERE t.unique_key = %(unique_key)s::text
