-- Tells which of these tasks have ended under exactly these leases: our own earlier write,
-- whose reply was lost, as opposed to a lease that was lost.
--
-- Parameters: ids and lease_ids (arrays of one length). Returns the ids.
-- Index: history_id, attempts_task_id, dead_letters_pkey; a lease id is never used twice.
--
-- What the sweep ended (to any of the three tables) has an attempt 'WorkerLost' under that lease;
-- what this worker wrote of a dead child process has another error class. A release leaves no
-- trace and is not recognised; nothing is lost with it.
SELECT f.id
FROM unnest(%(ids)s::bigint[], %(lease_ids)s::bigint[]) AS f (id, lease_id)
WHERE (
    EXISTS (SELECT FROM pgtasks.history AS h WHERE h.id = f.id AND h.lease_id = f.lease_id)
    OR EXISTS (SELECT FROM pgtasks.attempts AS a WHERE a.task_id = f.id AND a.lease_id = f.lease_id)
    OR EXISTS (SELECT FROM pgtasks.dead_letters AS d WHERE d.id = f.id AND d.lease_id = f.lease_id)
)
AND NOT EXISTS (
    SELECT FROM pgtasks.attempts AS a
    WHERE a.task_id = f.id AND a.lease_id = f.lease_id
        AND a.outcome = 'worker_lost' AND a.error_class = 'WorkerLost'
)
