-- Removes the schedules of a deployment that its code no longer defines, or only names them.
--
-- Parameters: deployment; names (those that the code defines); dry_run.
-- Returns rows: name. A scan: it is a small table, and a person asks.
-- Rows are locked in the order of names, as by everybody who takes several.
WITH stale AS MATERIALIZED (
    SELECT s.name
    FROM pgtasks.schedules AS s
    WHERE s.source = 'code' AND s.deployment = %(deployment)s AND s.name <> ALL(%(names)s::text[])
    ORDER BY s.name
    FOR UPDATE OF s
),

gone AS (
    DELETE FROM pgtasks.schedules AS s
    USING stale AS f
    WHERE s.name = f.name AND NOT %(dry_run)s
    RETURNING s.name
)

SELECT f.name
FROM stale AS f
ORDER BY f.name
