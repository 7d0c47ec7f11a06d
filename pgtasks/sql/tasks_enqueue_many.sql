-- Adds many tasks that have a unique_key; those whose key is taken are left alone or replaced.
--
-- Parameters: tasks (a JSON array, as pgtasks.enqueue_many takes it); on_conflict.
-- Returns one row: created and existing (counts).
SELECT
    count(*) FILTER (WHERE e.created) AS created,
    count(*) FILTER (WHERE NOT e.created) AS existing
FROM pgtasks.enqueue_many(%(tasks)s::jsonb, %(on_conflict)s::text) AS e
