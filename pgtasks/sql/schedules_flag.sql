-- Notes why a schedule cannot be planned or fired.
--
-- Parameters: name; planned_from and next_fire, as they were read; problem; wait (whether every
-- scheduler leaves it alone for a minute, so that it does not keep them from the others).
-- Returns its name if it was noted. Index: schedules_pkey. The guard: an edit meanwhile, or a
-- scheduler that did fire it, makes the finding void. SKIP LOCKED: an edit under way will do so.
UPDATE pgtasks.schedules AS s
SET
    problem = %(problem)s,
    problem_at = CASE WHEN %(wait)s THEN clock_timestamp() END
WHERE s.name = (
    SELECT x.name FROM pgtasks.schedules AS x
    WHERE x.name = %(name)s AND x.planned_from = %(planned_from)s
        AND x.next_fire IS NOT DISTINCT FROM %(next_fire)s::timestamptz
    FOR NO KEY UPDATE SKIP LOCKED
)
RETURNING s.name
