-- Adds a schedule that a person made, unless its name is taken.
--
-- Parameters: the columns; payload is JSON text, jitter_s are seconds.
-- Returns one row: name; none when the name is taken. Index: schedules_pkey.
INSERT INTO pgtasks.schedules AS s (
    name, expression, timezone, seconds, task, payload, queue, priority, enabled, missed, missed_max, overlap, jitter
)
VALUES (
    %(name)s, %(expression)s, %(timezone)s, %(seconds)s, %(task)s, %(payload)s::jsonb, %(queue)s, %(priority)s,
    %(enabled)s, %(missed)s, %(missed_max)s, %(overlap)s, make_interval(secs => %(jitter_s)s)
)
ON CONFLICT (name) DO NOTHING
RETURNING s.name
