-- Reads which of some fire times of a schedule have a row, and what it says.
--
-- Parameters: name; fire_times. Returns rows: fire_time, outcome. Index: schedule_fires_pkey.
SELECT f.fire_time, f.outcome
FROM pgtasks.schedule_fires AS f
WHERE f.schedule = %(name)s AND f.fire_time = ANY(%(fire_times)s::timestamptz[])
