-- Says whether this role may stream tasks into the table, as opposed to calling enqueue_many.
--
-- Returns one row: may_copy. The columns are those of tasks_copy.sql.
SELECT bool_and(has_column_privilege('pgtasks.tasks', c.name, 'INSERT')) AS may_copy
FROM unnest(
    ARRAY['name', 'payload', 'queue', 'priority', 'run_at', 'max_attempts', 'timeout', 'headers']
) AS c (name)
