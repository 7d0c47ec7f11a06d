-- Estimates what was completed lately, by queue, from a sample of pages.
--
-- Parameters: pages, how many to read; period_s and recent_s, how far back to look. Returns
-- queue, how many rows of each period were on those pages, and the percentage of the
-- partitions concerned that was read; 100 means exact.
-- Index: none on purpose; reads at most some `pages` pages of the one or two partitions that
-- the period lies in (and of the default partition), never a payload stored out of line.
WITH concerned (partition) AS (
    SELECT to_regclass('pgtasks.history_default')
    UNION
    SELECT to_regclass('pgtasks.history_' || to_char(moment AT TIME ZONE 'UTC', 'YYYYMMDD'))
    FROM unnest(
        ARRAY[statement_timestamp(), statement_timestamp() - make_interval(secs => %(period_s)s)]
    ) AS m (moment)
),

sample (percentage) AS (
    SELECT
        least(
            100.0,
            100.0 * %(pages)s * current_setting('block_size')::bigint
            / greatest(1, sum(pg_relation_size(c.partition)))
        )::double precision
    FROM concerned AS c
)

SELECT
    h.queue,
    count(*) AS period,
    count(*) FILTER (
        WHERE h.finished_at >= statement_timestamp() - make_interval(secs => %(recent_s)s)
    ) AS recent,
    s.percentage
FROM sample AS s
CROSS JOIN LATERAL (
    SELECT x.queue, x.finished_at
    FROM pgtasks.history AS x TABLESAMPLE SYSTEM (s.percentage) -- noqa: PRS, the linter knows only a literal there
    WHERE x.finished_at >= statement_timestamp() - make_interval(secs => %(period_s)s)
        AND x.status = 'completed'
) AS h
GROUP BY h.queue, s.percentage
