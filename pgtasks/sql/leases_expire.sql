-- Ends the leases of a worker whose process is known to be dead, so that the sweep takes their
-- tasks at once.
--
-- Parameters: worker_id. Returns the ids of its leases, expired ones included, in any order.
-- Index: leases is small and read in full.
--
-- Who may run this: only the process that started that worker, chose its id for this one life
-- (an id is never used again), and got its exit status from the kernel. Nobody else can tell a
-- dead worker from one that is cut off, and of a living one this would take tasks that run.
--
-- What the dead worker sent last may still run in its backends, after this or beside it:
--  * A heartbeat renews the leases that this has ended, or has them locked and they are passed
--    over here (nothing is waited for). A claim adds a lease that is not seen here. So the
--    caller looks again, the last time when whatever was sent has been ended by
--    statement_timeout (pgtasks/engine/lost_workers.py). A lease that escapes even that, behind
--    a pooler without such a limit, ends by itself.
--  * A completion (a retry, a release) has its tasks' rows locked: the sweep passes over them, and
--    the outcome counts. If the sweep was first, the completion waits for the row, finds
--    another lease in it or none, and writes nothing. So the task has one outcome either way.
-- The lease's end is not moved forwards: what the sweep tells of it stays true.
WITH theirs AS MATERIALIZED (
    SELECT l.id
    FROM pgtasks.leases AS l
    WHERE l.worker_id = %(worker_id)s::uuid
    ORDER BY l.id
    FOR NO KEY UPDATE SKIP LOCKED
)

UPDATE pgtasks.leases AS l
SET expires_at = least(l.expires_at, clock_timestamp())
WHERE l.id = ANY(array(SELECT t.id FROM theirs AS t))
RETURNING l.id
