-- Removes one day of history or failed attempts that is older than the retention, or, when no
-- whole day is left, a batch of old rows of a default partition.
--
-- Parameters: keep_s (seconds); limit (rows). Returns one Pruned row: nothing more is to be
-- done when both counts are 0.
SELECT
    p.partitions,
    p.rows
FROM pgtasks.prune(make_interval(secs => %(keep_s)s), %(limit)s) AS p
