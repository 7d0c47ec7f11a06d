-- Changes a schedule that is as it was when it was read; the trigger plans it anew if it must be.
--
-- Parameters: updated_at (as it was read); the columns; payload is JSON text, NULL leaves it as it
-- is (it may hold numbers that Python cannot pass on); jitter_s are seconds.
-- Returns one row: name; none when somebody else changed or removed it meanwhile.
-- Index: schedules_pkey. `updated_at` is set on every change but not by the schedulers, so it is
-- the guard against two people who edit at once.
UPDATE pgtasks.schedules AS s
SET
    expression = %(expression)s,
    timezone = %(timezone)s,
    seconds = %(seconds)s,
    task = %(task)s,
    payload = coalesce(%(payload)s::jsonb, s.payload),
    queue = %(queue)s,
    priority = %(priority)s,
    enabled = %(enabled)s,
    missed = %(missed)s,
    missed_max = %(missed_max)s,
    overlap = %(overlap)s,
    jitter = make_interval(secs => %(jitter_s)s)
WHERE s.name = %(name)s AND s.updated_at = %(updated_at)s
RETURNING s.name
