-- Lists the day partitions that are older than a retention, without touching them.
--
-- Parameter: keep_s (seconds). Returns OldPartition rows, the oldest first; rows are what
-- PostgreSQL's statistics estimate, NULL where there are none yet.
SELECT
    c.relname::text AS name,
    CASE WHEN c.reltuples >= 0 THEN c.reltuples::bigint END AS rows,
    pg_total_relation_size(c.oid) AS bytes
FROM pg_inherits AS i
INNER JOIN pg_class AS c ON i.inhrelid = c.oid
INNER JOIN pg_class AS p ON i.inhparent = p.oid
INNER JOIN pg_namespace AS n ON p.relnamespace = n.oid
WHERE n.nspname = 'pgtasks' AND p.relname IN ('history', 'attempts')
    AND c.relname ~ ('^' || p.relname || '_[0-9]{8}$')
    AND right(c.relname, 8)
    < to_char((clock_timestamp() - make_interval(secs => %(keep_s)s)) AT TIME ZONE 'UTC', 'YYYYMMDD')
ORDER BY right(c.relname, 8), c.relname
