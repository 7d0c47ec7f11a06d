-- 0002_schedules: cron definitions, and one row per schedule and fire time.

-- Definitions. A plain INSERT of name, expression and task is enough. The times are computed
-- by the schedulers, because PostgreSQL does not know cron: next_fire NULL means "not planned
-- yet", and problem says why it cannot be; problem_at, since when it is left alone for a while.
CREATE TABLE pgtasks.schedules (
    name text COLLATE "C" NOT NULL,
    expression text NOT NULL,
    timezone text NOT NULL DEFAULT 'UTC',
    seconds boolean NOT NULL DEFAULT false,
    task text COLLATE "C" NOT NULL,
    payload jsonb NOT NULL DEFAULT '{}',
    queue text COLLATE "C",
    priority smallint,
    enabled boolean NOT NULL DEFAULT true,
    missed text COLLATE "C" NOT NULL DEFAULT 'latest',
    missed_max integer NOT NULL DEFAULT 100,
    overlap text COLLATE "C" NOT NULL DEFAULT 'allow',
    jitter interval NOT NULL DEFAULT '0',
    source text COLLATE "C" NOT NULL DEFAULT 'person',
    deployment text,
    planned_from timestamptz NOT NULL DEFAULT clock_timestamp(),
    next_fire timestamptz,
    last_fire timestamptz,
    problem text,
    problem_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT schedules_pkey PRIMARY KEY (name),
    CONSTRAINT name_has_1_to_200_characters CHECK (length(name) BETWEEN 1 AND 200),
    CONSTRAINT name_has_no_control_characters CHECK (name !~ '[\x01-\x1f\x7f]'),
    CONSTRAINT expression_has_1_to_256_characters CHECK (length(expression) BETWEEN 1 AND 256),
    CONSTRAINT timezone_has_1_to_100_characters CHECK (length(timezone) BETWEEN 1 AND 100),
    CONSTRAINT task_has_1_to_200_characters CHECK (length(task) BETWEEN 1 AND 200),
    CONSTRAINT task_has_no_control_characters CHECK (task !~ '[\x01-\x1f\x7f]'),
    CONSTRAINT payload_is_an_object CHECK (jsonb_typeof(payload) = 'object'),
    CONSTRAINT payload_is_at_most_2_mib CHECK (pg_column_size(payload) <= 2097152),
    CONSTRAINT queue_has_1_to_200_characters CHECK (length(queue) BETWEEN 1 AND 200),
    CONSTRAINT queue_has_no_control_characters CHECK (queue !~ '[\x01-\x1f\x7f]'),
    CONSTRAINT missed_is_skip_latest_or_all CHECK (missed IN ('skip', 'latest', 'all')),
    CONSTRAINT missed_max_is_between_1_and_1000 CHECK (missed_max BETWEEN 1 AND 1000),
    CONSTRAINT overlap_is_allow_or_skip CHECK (overlap IN ('allow', 'skip')),
    CONSTRAINT jitter_is_between_0_and_1_day CHECK (jitter >= interval '0' AND jitter <= interval '1 day'),
    CONSTRAINT source_is_code_or_person CHECK (source IN ('code', 'person')),
    CONSTRAINT planned_from_is_between_1970_and_9999 CHECK (
        planned_from >= '1970-01-01 00:00:00+00' AND planned_from < '9999-12-31 00:00:00+00'
    ),
    CONSTRAINT last_fire_is_between_1970_and_9999 CHECK (
        last_fire >= '1970-01-01 00:00:00+00' AND last_fire < '9999-12-31 00:00:00+00'
    ),
    CONSTRAINT created_at_is_between_1970_and_9999 CHECK (
        created_at >= '1970-01-01 00:00:00+00' AND created_at < '9999-12-31 00:00:00+00'
    ),
    CONSTRAINT updated_at_is_between_1970_and_9999 CHECK (
        updated_at >= '1970-01-01 00:00:00+00' AND updated_at < '9999-12-31 00:00:00+00'
    ),
    CONSTRAINT next_fire_is_between_1970_and_9999 CHECK (
        next_fire >= '1970-01-01 00:00:00+00' AND next_fire < '9999-12-31 00:00:00+00'
    )
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 500);

-- Which schedules are due; those that are not planned yet come first.
CREATE INDEX schedules_due ON pgtasks.schedules (next_fire NULLS FIRST) WHERE enabled;

-- What became of each fire time. The primary key is what makes a slot fire once: whoever
-- inserts the row inserts the task, in one statement.
CREATE TABLE pgtasks.schedule_fires (
    schedule text COLLATE "C" NOT NULL,
    fire_time timestamptz NOT NULL,
    task_id bigint,
    fired_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    outcome text COLLATE "C" NOT NULL,
    CONSTRAINT schedule_fires_pkey PRIMARY KEY (schedule, fire_time),
    CONSTRAINT fire_time_is_between_1970_and_9999 CHECK (
        fire_time >= '1970-01-01 00:00:00+00' AND fire_time < '9999-12-31 00:00:00+00'
    ),
    CONSTRAINT fired_at_is_between_1970_and_9999 CHECK (
        fired_at >= '1970-01-01 00:00:00+00' AND fired_at < '9999-12-31 00:00:00+00'
    ),
    CONSTRAINT outcome_is_fired_skipped_overlap_or_missed CHECK (outcome IN ('fired', 'skipped_overlap', 'missed')),
    CONSTRAINT fired_means_a_task CHECK ((outcome = 'fired') = (task_id IS NOT NULL))
);
CREATE INDEX schedule_fires_fire_time ON pgtasks.schedule_fires (fire_time);

-- A change of the plan is planned anew, from now on: nothing fires for the past, and nothing
-- by the old plan. A change of the payload leaves the plan alone.
CREATE FUNCTION pgtasks.schedules_changed() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    new.updated_at := clock_timestamp();
    IF tg_op = 'INSERT'
        OR (new.expression, new.timezone, new.seconds, new.enabled)
        IS DISTINCT FROM (old.expression, old.timezone, old.seconds, old.enabled) THEN
        new.planned_from := clock_timestamp();
        new.next_fire := NULL;
        new.problem := NULL;
        new.problem_at := NULL;
    END IF;
    RETURN new;
END
$$;

CREATE TRIGGER schedules_changed
BEFORE INSERT OR UPDATE OF name, expression, timezone, seconds, task, payload, queue, priority, enabled, missed,
missed_max, overlap, jitter ON pgtasks.schedules
FOR EACH ROW EXECUTE FUNCTION pgtasks.schedules_changed();

-- Wakes the schedulers that sleep until the next fire.
CREATE FUNCTION pgtasks.schedules_announced() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM pg_notify('pgtasks_schedules', '');
    RETURN NULL;
END
$$;

CREATE TRIGGER schedules_announced
AFTER INSERT OR UPDATE OF expression, timezone, seconds, enabled ON pgtasks.schedules
FOR EACH STATEMENT EXECUTE FUNCTION pgtasks.schedules_announced();

-- One row per schedule, for people: how late the last fire was, what was missed and skipped.
CREATE VIEW pgtasks.schedule_stats AS
SELECT
    s.name,
    s.expression,
    s.timezone,
    s.seconds,
    s.task,
    s.queue,
    s.priority,
    s.enabled,
    s.missed,
    s.missed_max,
    s.overlap,
    s.jitter,
    s.source,
    s.deployment,
    s.next_fire,
    s.last_fire,
    s.problem,
    greatest(interval '0', statement_timestamp() - s.next_fire) AS overdue,
    f.lateness,
    f.fired,
    f.missed_fires,
    f.skipped
FROM pgtasks.schedules AS s
CROSS JOIN LATERAL (
    -- The last day, at most a thousand fires.
    SELECT
        count(*) FILTER (WHERE x.outcome = 'fired') AS fired,
        count(*) FILTER (WHERE x.outcome = 'missed') AS missed_fires,
        count(*) FILTER (WHERE x.outcome = 'skipped_overlap') AS skipped,
        (array_agg(x.fired_at - x.fire_time ORDER BY x.fire_time DESC) FILTER (WHERE x.outcome = 'fired'))[1]
            AS lateness
    FROM (
        SELECT y.outcome, y.fired_at, y.fire_time
        FROM pgtasks.schedule_fires AS y
        WHERE y.schedule = s.name AND y.fire_time > statement_timestamp() - interval '1 day'
        ORDER BY y.fire_time DESC
        LIMIT 1000
    ) AS x
) AS f;
