-- Tells which of these tasks have ended under exactly these leases: our own earlier write,
-- whose reply was lost, as opposed to a lease that was lost.
--
-- Parameters: arrays of one length: ids, lease_ids, traceless (true for a completion that leaves
-- no row in history), queues (its queue, when it completed). Returns the ids.
-- Index: history_id, attempts_task_id, dead_letters_pkey; a lease id is never used twice.
--
-- What the sweep ended (to any of the three tables) has an attempt 'WorkerLost' under that lease;
-- what this worker wrote of a dead child process has another error class. A release leaves no
-- trace and is not recognised; nothing is lost with it.
--
-- A completion without a trace is ours when the task is nowhere any more, which is all that can
-- be known; a task that was swept and has gone on under another lease is somewhere, unless that
-- attempt completed without a trace as well.
SELECT f.id
FROM unnest(
    %(ids)s::bigint[], %(lease_ids)s::bigint[], %(traceless)s::boolean[], %(queues)s::text[]
) AS f (id, lease_id, is_traceless, queue)
WHERE (
    EXISTS (SELECT FROM pgtasks.history AS h WHERE h.id = f.id AND h.lease_id = f.lease_id OFFSET 0)
    OR EXISTS (SELECT FROM pgtasks.attempts AS a WHERE a.task_id = f.id AND a.lease_id = f.lease_id OFFSET 0)
    OR EXISTS (SELECT FROM pgtasks.dead_letters AS d WHERE d.id = f.id AND d.lease_id = f.lease_id OFFSET 0)
    OR (
        (
            f.is_traceless
            OR EXISTS (SELECT FROM pgtasks.queues AS q WHERE q.name = f.queue AND NOT q.keep_completed)
        )
        -- OFFSET keeps these looks by the primary key for each task, whatever the planner believes.
        AND NOT EXISTS (SELECT FROM pgtasks.tasks AS t WHERE t.id = f.id OFFSET 0)
        AND NOT EXISTS (SELECT FROM pgtasks.history AS h WHERE h.id = f.id OFFSET 0)
        AND NOT EXISTS (SELECT FROM pgtasks.dead_letters AS d WHERE d.id = f.id OFFSET 0)
    )
)
AND NOT EXISTS (
    SELECT FROM pgtasks.attempts AS a
    WHERE a.task_id = f.id AND a.lease_id = f.lease_id
        AND a.outcome = 'worker_lost' AND a.error_class = 'WorkerLost'
    OFFSET 0
)
