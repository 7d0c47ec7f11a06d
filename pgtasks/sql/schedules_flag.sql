-- Notes why a schedule cannot be planned or fired.
--
-- Parameters: name; planned_from; problem; wait (whether it is left alone for a minute, so that
-- it does not keep the schedulers from the others).
-- Returns its name if it was noted. Index: schedules_pkey. The guard: an edit meanwhile makes the
-- finding void. SKIP LOCKED: an edit under way will do so.
UPDATE pgtasks.schedules AS s
SET
    problem = %(problem)s,
    problem_at = CASE WHEN %(wait)s THEN clock_timestamp() END
WHERE s.name = (
    SELECT x.name FROM pgtasks.schedules AS x
    WHERE x.name = %(name)s AND x.planned_from = %(planned_from)s
    FOR NO KEY UPDATE SKIP LOCKED
)
RETURNING s.name
