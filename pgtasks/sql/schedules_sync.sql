-- Writes an app's schedules to the table: adds new ones, updates its own, touches nobody else's.
--
-- Parameters: deployment; arrays of one length: names, expressions, timezones, seconds, tasks,
-- payloads (JSON texts), queues, priorities, misseds, missed_maxes, overlaps, jitters (seconds).
-- Returns one row: written (names added or changed), foreign_names (names that belong to a person or
-- another deployment and were left alone), removed (this deployment's names that the code no
-- longer has).
-- Index: schedules_pkey, one probe per name. In the order of names: workers that start together lock in
-- one order.
-- What is as it should be is not touched, not even locked: an edit that somebody left open must not
-- keep workers from starting.
-- `enabled` is left as it is: who paused a schedule of the code wants it paused.
WITH given AS MATERIALIZED (
    SELECT g.*
    FROM unnest(
        %(names)s::text[], %(expressions)s::text[], %(timezones)s::text[], %(seconds)s::boolean[], %(tasks)s::text[],
        %(payloads)s::text[], %(queues)s::text[], %(priorities)s::smallint[], %(misseds)s::text[],
        %(missed_maxes)s::integer[], %(overlaps)s::text[], %(jitters)s::double precision[]
    ) AS g (
        name, expression, timezone, seconds, task, payload, queue, priority, missed, missed_max, overlap, jitter_s
    )
),

changed AS MATERIALIZED (
    SELECT g.*
    FROM given AS g
    LEFT JOIN LATERAL (SELECT r.* FROM pgtasks.schedules AS r WHERE r.name = g.name LIMIT 1) AS s ON true
    WHERE s.name IS NULL
        OR s.source = 'code' AND s.deployment = %(deployment)s
        AND (
            s.expression, s.timezone, s.seconds, s.task, s.payload, s.queue, s.priority, s.missed, s.missed_max,
            s.overlap, s.jitter
        ) IS DISTINCT FROM (
            g.expression, g.timezone, g.seconds, g.task, g.payload::jsonb, g.queue, g.priority, g.missed,
            g.missed_max, g.overlap, make_interval(secs => g.jitter_s)
        )
),

written AS (
    INSERT INTO pgtasks.schedules AS s (
        name, expression, timezone, seconds, task, payload, queue, priority, missed, missed_max, overlap, jitter,
        source, deployment
    )
    SELECT
        g.name, g.expression, g.timezone, g.seconds, g.task, g.payload::jsonb, g.queue, g.priority, g.missed,
        g.missed_max, g.overlap, make_interval(secs => g.jitter_s), 'code', %(deployment)s
    FROM changed AS g
    ORDER BY g.name
    ON CONFLICT (name) DO UPDATE SET
        expression = excluded.expression,
        timezone = excluded.timezone,
        seconds = excluded.seconds,
        task = excluded.task,
        payload = excluded.payload,
        queue = excluded.queue,
        priority = excluded.priority,
        missed = excluded.missed,
        missed_max = excluded.missed_max,
        overlap = excluded.overlap,
        jitter = excluded.jitter
    WHERE s.source = 'code' AND s.deployment = %(deployment)s
        AND (
            s.expression, s.timezone, s.seconds, s.task, s.payload, s.queue, s.priority, s.missed, s.missed_max,
            s.overlap, s.jitter
        ) IS DISTINCT FROM (
            excluded.expression, excluded.timezone, excluded.seconds, excluded.task, excluded.payload,
            excluded.queue, excluded.priority, excluded.missed, excluded.missed_max, excluded.overlap,
            excluded.jitter
        )
    RETURNING s.name
)

SELECT
    coalesce((SELECT array_agg(w.name ORDER BY w.name) FROM written AS w), '{}') AS written,
    coalesce((
        SELECT array_agg(s.name ORDER BY s.name) FROM pgtasks.schedules AS s
        WHERE s.name = ANY(%(names)s::text[])
            AND (s.source <> 'code' OR s.deployment IS DISTINCT FROM %(deployment)s)
    ), '{}') AS foreign_names,
    coalesce((
        SELECT array_agg(s.name ORDER BY s.name) FROM pgtasks.schedules AS s
        WHERE s.source = 'code' AND s.deployment = %(deployment)s AND s.name <> ALL(%(names)s::text[])
    ), '{}') AS removed
