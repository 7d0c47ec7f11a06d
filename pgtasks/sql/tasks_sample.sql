-- Counts live tasks by queue and name on a sample of pages: all of them while the table is small.
--
-- Parameter: pages, how many to read. Returns queue, name, the counts found on those pages, how
-- many of the waiting are due, and the percentage of the table that was read; 100 means exact.
-- Index: none on purpose; reads exactly `pages` pages by their numbers, whatever the size of the
-- table, and never a payload that is stored out of line. One page at random of each of as many
-- equal stretches of the table: TABLESAMPLE SYSTEM takes pages by chance, and how many it takes
-- is off by a tenth and more where there are few. OFFSET 0 keeps the planner from a join with the
-- whole table.
WITH table_size (pages) AS (
    SELECT pg_relation_size('pgtasks.tasks') / current_setting('block_size')::bigint
),

sample (percentage, first_row, row_behind) AS MATERIALIZED (
    -- All, also what is appended meanwhile.
    SELECT 100.0::double precision, '(0,0)'::tid, '(4294967294,0)'::tid
    FROM table_size AS s
    WHERE s.pages <= %(pages)s
    UNION ALL
    SELECT 100.0 * %(pages)s / s.pages, ('(' || p.number || ',0)')::tid, ('(' || p.number + 1 || ',0)')::tid
    FROM table_size AS s
    CROSS JOIN LATERAL (
        SELECT floor((g.stretch + random()) * s.pages / %(pages)s)::bigint AS number
        FROM generate_series(0, %(pages)s - 1) AS g (stretch)
    ) AS p
    WHERE s.pages > %(pages)s
)

SELECT
    t.queue,
    t.name,
    count(*) FILTER (WHERE t.state = 'queued' AND t.attempt = 0 AND t.run_at > statement_timestamp()) AS scheduled,
    count(*) FILTER (WHERE t.state = 'queued' AND t.attempt = 0 AND t.run_at <= statement_timestamp()) AS queued,
    count(*) FILTER (WHERE t.state = 'running') AS running,
    count(*) FILTER (WHERE t.state = 'queued' AND t.attempt > 0) AS retrying,
    count(*) FILTER (WHERE t.state = 'queued' AND t.run_at <= statement_timestamp()) AS due,
    s.percentage
FROM sample AS s
CROSS JOIN LATERAL (
    SELECT x.queue, x.name, x.state, x.attempt, x.run_at
    FROM pgtasks.tasks AS x
    WHERE x.ctid >= s.first_row AND x.ctid < s.row_behind
    OFFSET 0
) AS t
GROUP BY t.queue, t.name, s.percentage
