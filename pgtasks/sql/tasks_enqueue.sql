-- Adds one task, or finds the living one with the same unique_key.
--
-- Parameters: the arguments of pgtasks.enqueue_task, delay and timeout in seconds.
-- Returns one row: id; created. Index: tasks_unique_key, where a key is given.
SELECT e.id, e.created
FROM pgtasks.enqueue_task(
    name => %(name)s::text,
    payload => %(payload)s::jsonb,
    queue => %(queue)s::text,
    priority => %(priority)s::integer,
    run_at => %(run_at)s::timestamptz,
    delay => make_interval(secs => %(delay_s)s::double precision),
    unique_key => %(unique_key)s::text,
    max_attempts => %(max_attempts)s::integer,
    timeout => make_interval(secs => %(timeout_s)s::double precision),
    headers => %(headers)s::jsonb,
    on_conflict => %(on_conflict)s::text
) AS e
