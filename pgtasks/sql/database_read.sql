-- Reads what metrics tell of the whole database: one statement, whose cost is bounded whatever the size.
--
-- Parameters: pages (of the live table, read as a sample); queues (looked at, the first by name);
-- counted_queues (of these, counted); tasks, running, dead, lately_dead and schedules (rows counted
-- one by one, for all queues together); lately_s and overdue_s (seconds). Returns a FactRow for each
-- queue, and one without a queue when there is none; what concerns the whole database is the same
-- in all rows.
-- Index: tasks_claim_order, dead_letters_queue and dead_letters_finished_at, tasks_pkey for what
-- runs, schedules_due; the sample of the live table as in tasks_sample.sql; pg_stat_activity as in
-- server_transactions.sql.
--
-- It costs the same with statistics, without, and with old ones, while a bulk comes in: rows that
-- are counted up to a limit are always taken in the order of an index, since the limits are no
-- constants, so that the planner expects to need but a tenth of the rows, and no sort is worth it.
-- Dead letters of one queue need no order; that is why they are taken from the queue's beginning
-- on in the order of queues, and those of the next one left out. Else a table that seems to
-- have one queue is read as a whole for each of the others.
WITH RECURSIVE live (queue, step) AS (
    (SELECT t.queue, 1 FROM pgtasks.tasks AS t WHERE t.queue >= '' ORDER BY t.queue LIMIT 1)
    UNION ALL
    SELECT
        (SELECT t.queue FROM pgtasks.tasks AS t WHERE t.queue > l.queue ORDER BY t.queue LIMIT 1),
        l.step + 1
    FROM live AS l
    WHERE l.queue IS NOT NULL AND l.step < %(queues)s
),

dead (queue, step) AS (
    (SELECT d.queue, 1 FROM pgtasks.dead_letters AS d ORDER BY d.queue LIMIT 1)
    UNION ALL
    SELECT
        (SELECT d.queue FROM pgtasks.dead_letters AS d WHERE d.queue > l.queue ORDER BY d.queue LIMIT 1),
        l.step + 1
    FROM dead AS l
    WHERE l.queue IS NOT NULL AND l.step < %(queues)s
),

alive (queue, workers) AS MATERIALIZED (
    SELECT served.queue, count(*)
    FROM pgtasks.workers AS w
    CROSS JOIN LATERAL unnest(w.queues) AS served (queue)
    WHERE w.last_seen_at > clock_timestamp() - make_interval(secs => w.lease_s)
    GROUP BY served.queue
),

named AS MATERIALIZED (
    SELECT n.queue, row_number() OVER (ORDER BY n.queue) AS place
    FROM (
        SELECT l.queue FROM live AS l WHERE l.queue IS NOT NULL
        UNION
        SELECT l.queue FROM dead AS l WHERE l.queue IS NOT NULL
        UNION
        SELECT q.name FROM pgtasks.queues AS q
        UNION
        SELECT tt.queue FROM pgtasks.task_types AS tt
        UNION
        SELECT a.queue FROM alive AS a
    ) AS n
    ORDER BY n.queue
    LIMIT %(queues)s
),

counting AS MATERIALIZED (
    SELECT
        n.queue,
        greatest(10, %(tasks)s / count(*) OVER ()) AS tasks,
        greatest(10, %(dead)s / count(*) OVER ()) AS dead
    FROM named AS n
    WHERE n.place <= %(counted_queues)s
),

oldest (queue, since) AS MATERIALIZED (
    SELECT n.queue, o.since
    FROM named AS n
    CROSS JOIN LATERAL (
        WITH RECURSIVE lanes (priority, step) AS (
            (SELECT t.priority, 1 FROM pgtasks.tasks AS t WHERE t.queue = n.queue ORDER BY t.priority DESC LIMIT 1)
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

        SELECT min(f.run_at) AS since
        FROM lanes AS l
        CROSS JOIN LATERAL (
            SELECT t.run_at FROM pgtasks.tasks AS t
            WHERE t.queue = n.queue AND t.priority = l.priority
                AND t.state = 'queued' AND t.run_at <= statement_timestamp()
            ORDER BY t.run_at, t.id LIMIT 1
        ) AS f
    ) AS o
),

table_size (pages) AS MATERIALIZED (
    SELECT pg_relation_size('pgtasks.tasks') / current_setting('block_size')::bigint
),

sample (weight, first_row, row_behind) AS MATERIALIZED (
    SELECT 1.0::double precision, '(0,0)'::tid, '(4294967294,0)'::tid
    FROM table_size AS s
    WHERE s.pages <= %(pages)s
    UNION ALL
    SELECT s.pages::double precision / %(pages)s, ('(' || p.number || ',0)')::tid, ('(' || p.number + 1 || ',0)')::tid
    FROM table_size AS s
    CROSS JOIN LATERAL (
        SELECT floor((g.stretch + random()) * s.pages / %(pages)s)::bigint AS number
        FROM generate_series(0, %(pages)s - 1) AS g (stretch)
    ) AS p
    WHERE s.pages > %(pages)s
),

-- The four counts of each queue: estimates, or all when the table is small enough.
sampled AS MATERIALIZED (
    SELECT
        t.queue,
        round(min(t.weight) * count(*) FILTER (
            WHERE t.state = 'queued' AND t.attempt = 0 AND t.run_at > statement_timestamp()
        ))::bigint AS scheduled,
        round(min(t.weight) * count(*) FILTER (
            WHERE t.state = 'queued' AND t.attempt = 0 AND t.run_at <= statement_timestamp()
        ))::bigint AS queued,
        round(min(t.weight) * count(*) FILTER (WHERE t.state = 'running'))::bigint AS running,
        round(min(t.weight) * count(*) FILTER (WHERE t.state = 'queued' AND t.attempt > 0))::bigint AS retrying
    FROM (
        SELECT s.weight, x.queue, x.state, x.attempt, x.run_at
        FROM sample AS s
        CROSS JOIN LATERAL (
            SELECT r.queue, r.state, r.attempt, r.run_at
            FROM pgtasks.tasks AS r
            WHERE r.ctid >= s.first_row AND r.ctid < s.row_behind
            OFFSET 0
        ) AS x
    ) AS t
    GROUP BY t.queue
),

-- The same, counted up to a limit: a total below it means that these are all. Not of queues
-- that the sample takes for far longer.
counted AS MATERIALIZED (
    SELECT
        c.queue,
        count(x.state) < c.tasks AS is_all,
        count(*) FILTER (WHERE x.state = 'queued' AND x.attempt = 0 AND x.run_at > statement_timestamp()) AS scheduled,
        count(*) FILTER (WHERE x.state = 'queued' AND x.attempt = 0 AND x.run_at <= statement_timestamp()) AS queued,
        count(*) FILTER (WHERE x.state = 'running') AS running,
        count(*) FILTER (WHERE x.state = 'queued' AND x.attempt > 0) AS retrying
    FROM counting AS c
    CROSS JOIN table_size AS z
    LEFT JOIN sampled AS s ON c.queue = s.queue
    LEFT JOIN LATERAL (
        SELECT t.state, t.attempt, t.run_at
        FROM pgtasks.tasks AS t
        WHERE t.queue = c.queue
        ORDER BY t.priority DESC, t.run_at, t.id
        LIMIT c.tasks
    ) AS x ON true
    WHERE z.pages > %(pages)s
        AND coalesce(s.scheduled + s.queued + s.running + s.retrying, 0) <= 3 * c.tasks
    GROUP BY c.queue, c.tasks
),

held AS MATERIALIZED (
    SELECT l.id AS lease_id, h.task_id
    FROM pgtasks.leases AS l
    CROSS JOIN LATERAL unnest(l.task_ids) AS h (task_id)
    CROSS JOIN table_size AS s
    WHERE s.pages > %(pages)s
    LIMIT %(running)s
),

-- What runs, through the leases: exact also where everything else is an estimate, unless there are too many.
leased AS MATERIALIZED (
    SELECT t.queue, count(*) AS running
    FROM held AS h
    CROSS JOIN LATERAL (
        SELECT r.queue FROM pgtasks.tasks AS r WHERE r.id = h.task_id AND r.lease_id = h.lease_id LIMIT 1
    ) AS t
    GROUP BY t.queue
),

tasks AS (
    SELECT
        coalesce(s.queue, c.queue) AS queue,
        CASE WHEN c.is_all THEN c.scheduled ELSE greatest(c.scheduled, s.scheduled) END AS scheduled,
        CASE WHEN c.is_all THEN c.queued ELSE greatest(c.queued, s.queued) END AS queued,
        CASE
            WHEN c.is_all THEN c.running
            WHEN z.pages <= %(pages)s THEN s.running
            WHEN (SELECT count(*) FROM held) < %(running)s THEN greatest(c.running, l.running, 0)
            ELSE greatest(c.running, l.running, s.running)
        END AS running,
        CASE WHEN c.is_all THEN c.retrying ELSE greatest(c.retrying, s.retrying) END AS retrying
    FROM sampled AS s
    FULL JOIN counted AS c ON s.queue = c.queue
    LEFT JOIN leased AS l ON coalesce(s.queue, c.queue) = l.queue
    CROSS JOIN table_size AS z
),

dead_counted AS MATERIALIZED (
    SELECT c.queue, count(x.queue) AS dead, count(x.queue) >= c.dead AS is_least
    FROM counting AS c
    LEFT JOIN LATERAL (
        SELECT d.queue FROM pgtasks.dead_letters AS d
        WHERE d.queue >= c.queue
        ORDER BY d.queue
        LIMIT c.dead
    ) AS x ON c.queue = x.queue
    GROUP BY c.queue, c.dead
),

-- Those with too many to count share what the statistics say is left.
dead_letters AS (
    SELECT
        d.queue,
        CASE
            WHEN d.is_least THEN greatest(d.dead, (
                SELECT (
                    k.reltuples::bigint
                    - (SELECT coalesce(sum(o.dead), 0) FROM dead_counted AS o WHERE NOT o.is_least)
                )::bigint / (SELECT count(*) FROM dead_counted AS o WHERE o.is_least)
                FROM pg_class AS k
                WHERE k.oid = 'pgtasks.dead_letters'::regclass
            ))
            ELSE d.dead
        END AS dead
    FROM dead_counted AS d
),

-- Those that came lately, whoever buried them: a worker, the sweep of another one, or a supervisor.
lately_dead AS MATERIALIZED (
    SELECT x.queue, count(*) AS dead
    FROM (
        SELECT d.queue FROM pgtasks.dead_letters AS d
        WHERE d.finished_at > statement_timestamp() - make_interval(secs => %(lately_s)s)
        ORDER BY d.finished_at DESC
        LIMIT %(lately_dead)s
    ) AS x
    GROUP BY x.queue
),

transactions (oldest_s) AS (
    SELECT extract(EPOCH FROM max(clock_timestamp() - x.since))::double precision
    FROM (
        SELECT a.xact_start AS since
        FROM pg_stat_activity AS a
        WHERE (a.datname = current_database() OR a.backend_type = 'walsender')
            AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL)
            AND a.backend_type <> 'autovacuum worker'
            AND a.pid <> pg_backend_pid()
            AND NOT EXISTS (SELECT FROM pg_stat_progress_vacuum AS v WHERE v.pid = a.pid)
        UNION ALL
        SELECT p.prepared
        FROM pg_prepared_xacts AS p
        WHERE p.database = current_database()
    ) AS x
),

overdue (schedules, since) AS (
    SELECT count(*), min(x.since)
    FROM (
        SELECT s.next_fire AS since
        FROM pgtasks.schedules AS s
        WHERE s.enabled AND s.problem IS NULL
            AND s.next_fire < statement_timestamp() - make_interval(secs => %(overdue_s)s)
        UNION ALL
        -- Not planned yet.
        SELECT s.planned_from
        FROM pgtasks.schedules AS s
        WHERE s.enabled AND s.problem IS NULL AND s.next_fire IS NULL
            AND s.planned_from < statement_timestamp() - make_interval(secs => %(overdue_s)s)
        LIMIT %(schedules)s
    ) AS x
)

SELECT
    q.queue,
    coalesce(extract(EPOCH FROM statement_timestamp() - o.since), 0)::double precision AS oldest_waiting_s,
    p.paused_at IS NOT NULL AS paused,
    coalesce(a.workers, 0) AS workers,
    coalesce(t.scheduled, 0) AS scheduled,
    coalesce(t.queued, 0) AS queued,
    coalesce(t.running, 0) AS running,
    coalesce(t.retrying, 0) AS retrying,
    coalesce(d.dead, 0) AS dead_letters,
    coalesce(e.dead, 0) AS dead_letters_last_hour,
    coalesce(x.oldest_s, 0) AS oldest_transaction_s,
    v.schedules AS schedules_overdue,
    coalesce(extract(EPOCH FROM statement_timestamp() - v.since), 0)::double precision AS schedules_overdue_s
FROM transactions AS x
CROSS JOIN overdue AS v
-- Beyond those that are named there are queues of which the sample, or the last hour, has seen something.
LEFT JOIN (
    SELECT n.queue FROM named AS n
    UNION
    SELECT s.queue FROM sampled AS s
    UNION
    SELECT m.queue FROM lately_dead AS m
) AS q ON true
LEFT JOIN oldest AS o ON q.queue = o.queue
LEFT JOIN pgtasks.queues AS p ON q.queue = p.name
LEFT JOIN alive AS a ON q.queue = a.queue
LEFT JOIN tasks AS t ON q.queue = t.queue
LEFT JOIN dead_letters AS d ON q.queue = d.queue
LEFT JOIN lately_dead AS e ON q.queue = e.queue
