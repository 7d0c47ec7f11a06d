-- Notes why a schedule cannot be planned or fired, and moves it out of the way of the others.
--
-- Parameters: name; planned_from; problem; next_fire (when to try again; NULL: when it is edited).
-- Returns nothing. Index: schedules_pkey. The guard: an edit meanwhile makes the finding void.
UPDATE pgtasks.schedules AS s
SET problem = %(problem)s, next_fire = %(next_fire)s
WHERE s.name = %(name)s AND s.planned_from = %(planned_from)s
