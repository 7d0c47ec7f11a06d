-- Gives the highest id of the live tasks, 0 when there are none. Index: tasks_pkey, its end.
SELECT coalesce(max(t.id), 0) AS newest_id FROM pgtasks.tasks AS t
