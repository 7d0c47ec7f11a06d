-- Counts the rows of the default partitions that are older than a retention, up to a limit.
--
-- Parameters: keep_s (seconds); limit. Returns one row. Index: the default partitions' BRIN
-- indexes on finished_at; they are read in full when most of them is old.
SELECT count(*) AS rows
FROM (
    SELECT FROM (
        SELECT h.finished_at FROM pgtasks.history_default AS h
        UNION ALL
        SELECT a.finished_at FROM pgtasks.attempts_default AS a
    ) AS d
    WHERE d.finished_at < clock_timestamp() - make_interval(secs => %(keep_s)s)
    LIMIT %(limit)s
) AS old
