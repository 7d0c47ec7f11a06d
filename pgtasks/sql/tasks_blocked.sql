-- Tells which of these tasks, still held by these leases, somebody else has locked at this
-- moment: a batch that ran into its lock timeout is written without them.
--
-- Parameters: ids and lease_ids (arrays of one length, sorted by id). Returns the ids.
-- Index: tasks_pkey, one probe per task.
--
-- It locks what can be locked and lets go of it at once, when the statement ends; it waits for
-- nobody. A row that was claimed, swept or finished meanwhile matches no more and is not named.
WITH asked AS MATERIALIZED (
    SELECT f.id, f.lease_id FROM unnest(%(ids)s::bigint[], %(lease_ids)s::bigint[]) AS f (id, lease_id)
),

free AS MATERIALIZED (
    SELECT t.id
    FROM asked AS f
    INNER JOIN pgtasks.tasks AS t ON f.id = t.id AND f.lease_id = t.lease_id
    ORDER BY t.id
    FOR UPDATE OF t SKIP LOCKED
)

SELECT f.id
FROM asked AS f
INNER JOIN pgtasks.tasks AS t ON f.id = t.id AND f.lease_id = t.lease_id
WHERE NOT EXISTS (SELECT FROM free AS x WHERE x.id = f.id)
