-- Names the day partitions of today and tomorrow (UTC) that are missing.
--
-- Returns one row per missing partition.
SELECT x.name
FROM (
    SELECT p.parent || '_' || to_char((clock_timestamp() AT TIME ZONE 'UTC')::date + n.days, 'YYYYMMDD') AS name
    FROM (VALUES ('history'), ('attempts')) AS p (parent)
    CROSS JOIN (VALUES (0), (1)) AS n (days)
) AS x
WHERE to_regclass('pgtasks.' || x.name) IS NULL
ORDER BY x.name
