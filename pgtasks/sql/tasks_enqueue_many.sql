-- Adds many tasks that have a unique_key; those whose key is taken are left alone or replaced.
--
-- Parameters: tasks (a JSON array, as pgtasks.enqueue_many takes it); on_conflict.
-- Returns one row: created and existing (counts); conflict_at and conflict_id (place in the
-- array and living task of the first that existed, NULL without one).
SELECT
    count(*) FILTER (WHERE e.created) AS created,
    count(*) FILTER (WHERE NOT e.created) AS existing,
    min(e.ordinal) FILTER (WHERE NOT e.created) - 1 AS conflict_at,
    (array_agg(e.id ORDER BY e.ordinal) FILTER (WHERE NOT e.created))[1] AS conflict_id
FROM pgtasks.enqueue_many(%(tasks)s::jsonb, %(on_conflict)s::text) AS e
