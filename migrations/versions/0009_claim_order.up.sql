-- 0009_claim_order: only what names a queue finds tasks through the claim order.
--
-- The predicate is true of every row, and PostgreSQL takes a partial index only for a query that
-- implies it: `queue = ...` does, `id = ...` does not. Without it the planner may take this index,
-- whose last column is the id, for a task whose id is known: where a vacuum or an analyze finds no
-- living task while an old snapshot keeps the dead ones, the table has pages and, as its statistics
-- say, no row; every index then looks as small as any other, and each task that ends is looked for
-- past all that is dead.
--
-- IS NOT NULL is for the index alone: a query's own is dropped by PostgreSQL 17 and later, since the
-- column has no NULL. What reads all queues through this index says `queue >= ''`. (Should a later
-- PostgreSQL drop it from the index, too, nothing is wrong but the plan above:
-- tests/leases/test_plans.py would tell.)
--
-- Locks: ACCESS EXCLUSIVE on the view, then on tasks until the index has been built anew, about ten
-- seconds for ten million living tasks: not CONCURRENTLY, because a migration is one transaction,
-- whole or not there. What wants tasks meanwhile waits, or fails by its own lock_timeout, as a
-- worker's statements do after five seconds, which it then tries again. With millions of tasks let
-- the queue run low first. If a lock cannot be had within a second, `pgtasks migrate` lets the
-- others go on and tries again. Workers of the version before go on; to list the queues they read
-- the whole table until they are restarted.

-- An index that finds updated rows, as every claim leaves them, is not used by a transaction that may
-- still see what they were: by none, while any transaction goes on that wrote before this one did.
-- The old index would be gone, so let these end first. (A new table has nothing that could matter.)
DO $$
DECLARE
    own xid8 := pg_current_xact_id();
    until timestamptz := clock_timestamp() + interval '1 s';
    older text;
BEGIN
    WHILE pg_relation_size('pgtasks.tasks') > 0 AND pg_snapshot_xmin(pg_current_snapshot()) < own LOOP
        IF clock_timestamp() >= until THEN
            SELECT x.who INTO older FROM (
                SELECT format('pid %s (%s) in database %s', a.pid, a.application_name, a.datname) AS who, a.backend_xid
                FROM pg_stat_activity AS a
                UNION ALL
                SELECT format('prepared transaction %L in database %s', p.gid, p.database), p.transaction
                FROM pg_prepared_xacts AS p
            ) AS x
            WHERE age(x.backend_xid) > age(own::xid)
            ORDER BY age(x.backend_xid) DESC LIMIT 1;
            RAISE 'a transaction that wrote before this migration is still open: %', coalesce(older, 'whose, is hidden')
                USING ERRCODE = 'lock_not_available';
        END IF;
        PERFORM pg_sleep(0.01);
    END LOOP;
END
$$;

-- One row per queue. Counts are exact up to 100,000 live tasks of a queue; beyond that they
-- are extrapolated from a sample of pages and `estimated` is true, so that the view costs
-- the same with a thousand tasks and with fifty million.
CREATE OR REPLACE VIEW pgtasks.queue_stats AS
WITH RECURSIVE live (queue) AS (
    -- A loose index scan: one probe per queue, whatever the number of tasks.
    (SELECT t.queue FROM pgtasks.tasks AS t WHERE t.queue >= '' ORDER BY t.queue LIMIT 1)
    UNION ALL
    SELECT (SELECT t.queue FROM pgtasks.tasks AS t WHERE t.queue > l.queue ORDER BY t.queue LIMIT 1)
    FROM live AS l
    WHERE l.queue IS NOT NULL
),

names (queue) AS (
    SELECT l.queue FROM live AS l WHERE l.queue IS NOT NULL
    UNION
    SELECT q.name FROM pgtasks.queues AS q
    UNION
    SELECT tt.queue FROM pgtasks.task_types AS tt
    UNION
    SELECT d.queue FROM pgtasks.dead_letters AS d
    UNION
    SELECT unnest(w.queues) FROM pgtasks.workers AS w
),

sample (percentage) AS (
    SELECT least(100, 100 * 2048.0 / greatest(1, pg_relation_size('pgtasks.tasks') / 8192))::double precision
),

dead (queue, dead) AS (
    SELECT d.queue, count(*) FROM pgtasks.dead_letters AS d GROUP BY d.queue
)

SELECT
    n.queue,
    q.paused_at,
    coalesce((s.scheduled * 100 / sample.percentage)::bigint, c.scheduled) AS scheduled,
    coalesce((s.queued * 100 / sample.percentage)::bigint, c.queued) AS queued,
    c.running,
    coalesce((s.retrying * 100 / sample.percentage)::bigint, c.retrying) AS retrying,
    coalesce(d.dead, 0) AS dead,
    c.total > 100000 AS estimated,
    o.oldest_waiting_since
FROM names AS n
LEFT JOIN pgtasks.queues AS q ON n.queue = q.name
LEFT JOIN dead AS d ON n.queue = d.queue
CROSS JOIN sample
CROSS JOIN LATERAL (
    SELECT
        count(*) AS total,
        count(*) FILTER (WHERE x.state = 'running') AS running,
        count(*) FILTER (WHERE x.state = 'queued' AND x.attempt > 0) AS retrying,
        count(*) FILTER (
            WHERE x.state = 'queued' AND x.attempt = 0 AND x.run_at > statement_timestamp()
        ) AS scheduled,
        count(*) FILTER (
            WHERE x.state = 'queued' AND x.attempt = 0 AND x.run_at <= statement_timestamp()
        ) AS queued
    FROM (
        SELECT t.state, t.attempt, t.run_at
        FROM pgtasks.tasks AS t
        WHERE t.queue = n.queue
        ORDER BY t.priority DESC, t.run_at, t.id
        LIMIT 100001
    ) AS x
) AS c
LEFT JOIN LATERAL (
    SELECT
        count(*) FILTER (WHERE t.state = 'queued' AND t.attempt > 0) AS retrying,
        count(*) FILTER (
            WHERE t.state = 'queued' AND t.attempt = 0 AND t.run_at > statement_timestamp()
        ) AS scheduled,
        count(*) FILTER (
            WHERE t.state = 'queued' AND t.attempt = 0 AND t.run_at <= statement_timestamp()
        ) AS queued
    -- The linter knows TABLESAMPLE only before an alias, where PostgreSQL does not take it.
    FROM pgtasks.tasks AS t TABLESAMPLE SYSTEM (sample.percentage) -- noqa: PRS
    WHERE t.queue = n.queue AND c.total > 100000
) AS s ON c.total > 100000
LEFT JOIN LATERAL (
    -- The oldest due task of each of the first priorities in use; the oldest of those.
    WITH RECURSIVE lanes (priority, step) AS (
        (
            SELECT t.priority, 1 FROM pgtasks.tasks AS t
            WHERE t.queue = n.queue ORDER BY t.priority DESC LIMIT 1
        )
        UNION ALL
        SELECT
            (
                SELECT t.priority FROM pgtasks.tasks AS t
                WHERE t.queue = n.queue AND t.priority < l.priority ORDER BY t.priority DESC LIMIT 1
            ),
            l.step + 1
        FROM lanes AS l
        WHERE l.priority IS NOT NULL AND l.step < 100
    )

    SELECT min(f.run_at) AS oldest_waiting_since
    FROM lanes AS l
    CROSS JOIN LATERAL (
        SELECT t.run_at FROM pgtasks.tasks AS t
        WHERE t.queue = n.queue AND t.priority = l.priority
            AND t.state = 'queued' AND t.run_at <= statement_timestamp()
        ORDER BY t.run_at LIMIT 1
    ) AS f
) AS o ON true;

-- squawk-ignore require-concurrent-index-deletion
DROP INDEX pgtasks.tasks_claim_order;
-- squawk-ignore require-concurrent-index-creation
CREATE INDEX tasks_claim_order ON pgtasks.tasks (queue, priority DESC, run_at, id) WHERE queue IS NOT NULL;
