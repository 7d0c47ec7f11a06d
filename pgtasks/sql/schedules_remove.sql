-- Removes a schedule. Its fires stay for their retention: they say what was done, and keep a slot
-- from being fired again by a schedule of the same name.
--
-- Parameter: name. Returns one row: source, deployment; none when there is no such schedule.
-- Index: schedules_pkey. It waits for a scheduler that fires it at this moment.
DELETE FROM pgtasks.schedules AS s
WHERE s.name = %(name)s
RETURNING s.source, s.deployment
