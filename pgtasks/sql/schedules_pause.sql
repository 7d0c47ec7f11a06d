-- Pauses a schedule, or lets it go on; the trigger plans it from then on.
--
-- Parameters: name; enabled (what it is to be).
-- Returns one row: changed (whether it was otherwise before); none when there is no such schedule.
-- Index: schedules_pkey. The row is locked before it is compared: of two who pause at once, one
-- has changed something.
WITH found AS MATERIALIZED (
    SELECT s.name, s.enabled <> %(enabled)s AS changed
    FROM pgtasks.schedules AS s
    WHERE s.name = %(name)s
    FOR NO KEY UPDATE OF s
),

changed AS (
    UPDATE pgtasks.schedules AS s
    SET enabled = %(enabled)s
    FROM found AS f
    WHERE s.name = f.name AND f.changed
    RETURNING s.name
)

SELECT f.changed
FROM found AS f
