-- Moves a batch of finished tasks from the live table to history, each only under the lease
-- that its worker claimed it with.
--
-- Parameters: worker_id; ids and lease_ids (arrays of one length, sorted by id); results
-- (JSON texts) and notes (why a result was not kept), each an array of that length or NULL;
-- keeps (false for those that leave no row in history; NULL when all do); emptied (leases whose
-- last task this is).
-- Returns moved: NULL when every task was moved, else the ids of those that were.
-- Index: tasks_pkey, one scan of it that probes each id. A row's own values lie in the arrays where
-- its id does; the ids are sorted, so width_bucket finds that place by halving. A join would leave it to the
-- planner which side to begin with, and it begins with the whole index where statistics of a
-- queue that was nearly empty say that it is small (docs/adr/0002-plans-that-do-not-flip.md).
-- Of two leases of one task in a batch (it was lost and claimed again) the later one is found,
-- which alone can still be valid.
--
-- Fencing: a task that was swept meanwhile has another lease or none, does not match, and
-- does not come back. If the sweep is changing it at this moment, this statement waits for
-- that row and then sees the new lease. The ids are sorted and each row is found by its key in
-- that order, so two batches never wait for each other in a circle. A lease row is waited for
-- by nobody: one that is locked at this moment stays, and the sweep deletes it when it has
-- expired, as it has no task any more. (Behind a transaction pooler, where the session's
-- planner settings are missing, the rows may be read in the order of their places: a deadlock with
-- somebody who cancels many is then possible in theory, and a batch that loses it is offered again.)
-- A crash before the commit leaves the task leased and it will be swept; after it, the task
-- is done. If only the reply is lost, outcomes_recognise.sql tells.
WITH done AS (
    DELETE FROM pgtasks.tasks AS t
    WHERE t.id = ANY(%(ids)s::bigint[])
        AND t.lease_id = (%(lease_ids)s::bigint[])[width_bucket(t.id, %(ids)s::bigint[])]
    RETURNING
        t.id, t.lease_id, t.created_at, t.run_at, t.claimed_at, t.attempt, t.max_attempts, t.priority, t.queue,
        t.name, t.payload, t.unique_key, t.headers,
        (%(results)s::text[])[width_bucket(t.id, %(ids)s::bigint[])] AS result,
        (%(notes)s::text[])[width_bucket(t.id, %(ids)s::bigint[])] AS note,
        (%(keeps)s::boolean[])[width_bucket(t.id, %(ids)s::bigint[])] AS is_kept
),

kept AS (
    INSERT INTO pgtasks.history (
        id, lease_id, created_at, run_at, started_at, attempt, max_attempts, priority, status, queue,
        name, payload, result, unique_key, worker_id, error, headers
    )
    SELECT
        d.id, d.lease_id, d.created_at, d.run_at, d.claimed_at, d.attempt, d.max_attempts, d.priority, 'completed',
        d.queue, d.name, d.payload, d.result::jsonb, d.unique_key, %(worker_id)s::uuid, d.note, d.headers
    FROM done AS d
    WHERE d.is_kept IS NOT false
        AND d.queue NOT IN (SELECT q.name FROM pgtasks.queues AS q WHERE NOT q.keep_completed)
),

spent AS MATERIALIZED (
    SELECT l.id
    FROM pgtasks.leases AS l
    WHERE l.id = ANY(%(emptied)s::bigint[]) AND l.worker_id = %(worker_id)s::uuid
    ORDER BY l.id
    FOR UPDATE SKIP LOCKED
),

emptied AS (
    DELETE FROM pgtasks.leases AS l
    WHERE l.id = ANY(array(SELECT s.id FROM spent AS s))
)

SELECT CASE WHEN count(*) < cardinality(%(ids)s::bigint[]) THEN coalesce(array_agg(d.id), '{}') END AS moved
FROM done AS d
