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
    CROSS JOIN LATERAL (
        SELECT r.id
        FROM pgtasks.tasks AS r
        WHERE r.id = f.id AND r.lease_id = f.lease_id
        FOR UPDATE SKIP LOCKED
    ) AS t
)

SELECT f.id
FROM asked AS f
CROSS JOIN LATERAL (
    SELECT r.id FROM pgtasks.tasks AS r WHERE r.id = f.id AND r.lease_id = f.lease_id LIMIT 1
) AS t
WHERE NOT EXISTS (SELECT FROM free AS x WHERE x.id = f.id)
