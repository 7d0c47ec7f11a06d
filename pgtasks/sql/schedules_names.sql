-- Names the schedules there are, to say which one was probably meant.
--
-- Parameter: limit. Returns rows: name. Index: schedules_pkey.
SELECT s.name
FROM pgtasks.schedules AS s
ORDER BY s.name
LIMIT %(limit)s
