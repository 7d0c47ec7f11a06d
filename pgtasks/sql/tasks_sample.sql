-- Counts live tasks by queue and name on a sample of pages: all of them while the table is small.
--
-- Parameter: pages, how many to read. Returns queue, name, the counts found on those pages, how
-- many of the waiting are due, and the percentage of the table that was read; 100 means exact.
-- Index: none on purpose; reads at most some `pages` pages, whatever the size of the table, and
-- never a payload that is stored out of line.
WITH sample (percentage) AS (
    SELECT
        least(
            100.0,
            100.0 * %(pages)s * current_setting('block_size')::bigint
            / greatest(1, pg_relation_size('pgtasks.tasks'))
        )::double precision
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
    FROM pgtasks.tasks AS x TABLESAMPLE SYSTEM (s.percentage) -- noqa: PRS, the linter knows only a literal there
) AS t
GROUP BY t.queue, t.name, s.percentage
