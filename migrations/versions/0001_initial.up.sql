-- 0001_initial: the live queue, its leases, what became of each task, and the SQL contract.
-- Run verbatim by `pgtasks migrate`; the schema's name is fixed, nothing here is templated.

-- Live tasks only: queued or running. Finished ones move to history or dead_letters.
--
-- A claim changes state, attempt, lease_id and claimed_at, none of which is in an index;
-- with over half of each page free (the claimed row is some 16 bytes longer than the queued
-- one, so 50 would be too little), PostgreSQL makes it a heap-only update that touches no
-- index at all. Keep those columns out of every index, and keep the list of indexes short.
CREATE TABLE pgtasks.tasks (
    id bigint GENERATED ALWAYS AS IDENTITY,
    queue text COLLATE "C" NOT NULL DEFAULT 'default',
    name text COLLATE "C" NOT NULL,
    payload jsonb NOT NULL DEFAULT '{}',
    priority smallint NOT NULL DEFAULT 0,
    run_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    state text COLLATE "C" NOT NULL DEFAULT 'queued',
    attempt integer NOT NULL DEFAULT 0,
    max_attempts integer,
    timeout interval,
    unique_key text COLLATE "C",
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    claimed_at timestamptz,
    lease_id bigint,
    cancel_requested_at timestamptz,
    headers jsonb,
    CONSTRAINT tasks_pkey PRIMARY KEY (id),
    CONSTRAINT queue_has_1_to_200_characters CHECK (length(queue) BETWEEN 1 AND 200),
    CONSTRAINT queue_has_no_control_characters CHECK (queue !~ '[\x01-\x1f\x7f]'),
    CONSTRAINT name_has_1_to_200_characters CHECK (length(name) BETWEEN 1 AND 200),
    CONSTRAINT name_has_no_control_characters CHECK (name !~ '[\x01-\x1f\x7f]'),
    CONSTRAINT payload_is_an_object CHECK (jsonb_typeof(payload) = 'object'),
    CONSTRAINT payload_is_at_most_2_mib CHECK (pg_column_size(payload) <= 2097152),
    CONSTRAINT headers_are_at_most_64_kib CHECK (pg_column_size(headers) <= 65536),
    CONSTRAINT run_at_is_between_1970_and_9999 CHECK (
        run_at >= '1970-01-01 00:00:00+00' AND run_at < '9999-12-31 00:00:00+00'
    ),
    CONSTRAINT created_at_is_between_1970_and_9999 CHECK (
        created_at >= '1970-01-01 00:00:00+00' AND created_at < '9999-12-31 00:00:00+00'
    ),
    CONSTRAINT attempt_is_not_negative CHECK (attempt >= 0),
    CONSTRAINT max_attempts_is_at_least_1 CHECK (max_attempts >= 1),
    CONSTRAINT timeout_is_positive_and_at_most_1_year CHECK (
        timeout > interval '0' AND timeout <= interval '366 days'
    ),
    CONSTRAINT unique_key_has_1_to_500_characters CHECK (length(unique_key) BETWEEN 1 AND 500),
    CONSTRAINT state_is_queued_or_running CHECK (state IN ('queued', 'running')),
    CONSTRAINT running_means_leased CHECK (
        (state = 'running') = (lease_id IS NOT NULL) AND (state = 'running') = (claimed_at IS NOT NULL)
    )
) WITH (
    fillfactor = 45,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_analyze_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0
);

-- The claim order. Not partial: a row stays in this index through its whole life, so a
-- claim need not touch it.
CREATE INDEX tasks_claim_order ON pgtasks.tasks (queue, priority DESC, run_at, id);
CREATE UNIQUE INDEX tasks_unique_key ON pgtasks.tasks (unique_key) WHERE unique_key IS NOT NULL;

-- One row per claimed batch. The id is the fencing token of every write about its tasks.
-- No index on expires_at: heartbeats are heap-only updates, and the table is small.
CREATE TABLE pgtasks.leases (
    id bigint GENERATED ALWAYS AS IDENTITY,
    worker_id uuid NOT NULL,
    expires_at timestamptz NOT NULL,
    task_ids bigint[] NOT NULL,
    CONSTRAINT leases_pkey PRIMARY KEY (id)
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.1,
    autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0
);

-- Finished tasks, by day (UTC) of finished_at. Retention drops a partition.
CREATE TABLE pgtasks.history (
    id bigint NOT NULL,
    lease_id bigint,
    created_at timestamptz NOT NULL,
    run_at timestamptz NOT NULL,
    started_at timestamptz,
    finished_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    attempt integer NOT NULL,
    max_attempts integer,
    priority smallint NOT NULL,
    status text COLLATE "C" NOT NULL CHECK (status IN ('completed', 'cancelled')),
    queue text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    payload jsonb NOT NULL,
    result jsonb,
    unique_key text COLLATE "C",
    worker_id uuid,
    error text,
    headers jsonb
) PARTITION BY RANGE (finished_at);
CREATE INDEX history_id ON pgtasks.history (id);
CREATE INDEX history_finished_at ON pgtasks.history USING brin (finished_at)
WITH (pages_per_range = 32, autosummarize = on);
CREATE TABLE pgtasks.history_default PARTITION OF pgtasks.history DEFAULT;

-- Every attempt that did not end in success, by day (UTC) of finished_at.
CREATE TABLE pgtasks.attempts (
    task_id bigint NOT NULL,
    attempt integer NOT NULL,
    lease_id bigint NOT NULL,
    worker_id uuid,
    outcome text COLLATE "C" NOT NULL CHECK (
        outcome IN ('failed', 'timed_out', 'cancelled', 'worker_lost')
    ),
    error_class text,
    error text,
    traceback text,
    queue text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    started_at timestamptz,
    finished_at timestamptz NOT NULL DEFAULT clock_timestamp()
) PARTITION BY RANGE (finished_at);
CREATE INDEX attempts_task_id ON pgtasks.attempts (task_id);
CREATE INDEX attempts_finished_at ON pgtasks.attempts USING brin (finished_at)
WITH (pages_per_range = 32, autosummarize = on);
CREATE TABLE pgtasks.attempts_default PARTITION OF pgtasks.attempts DEFAULT;

-- Tasks out of attempts, or failed for good; kept until somebody replays or purges them.
CREATE TABLE pgtasks.dead_letters (
    id bigint NOT NULL,
    lease_id bigint,
    created_at timestamptz NOT NULL,
    run_at timestamptz NOT NULL,
    started_at timestamptz,
    finished_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    attempt integer NOT NULL,
    max_attempts integer,
    priority smallint NOT NULL,
    reason text COLLATE "C" NOT NULL CHECK (
        reason IN ('exhausted', 'permanent', 'worker_lost')
    ),
    queue text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    payload jsonb NOT NULL,
    unique_key text COLLATE "C",
    timeout interval,
    worker_id uuid,
    error_class text,
    error text,
    traceback text,
    headers jsonb,
    CONSTRAINT dead_letters_pkey PRIMARY KEY (id)
);
CREATE INDEX dead_letters_finished_at ON pgtasks.dead_letters (finished_at);
CREATE INDEX dead_letters_queue ON pgtasks.dead_letters (queue, finished_at);

-- Live worker processes; one row each, updated by its heartbeat.
CREATE TABLE pgtasks.workers (
    id uuid NOT NULL,
    name text NOT NULL,
    queues text[] NOT NULL,
    names text[] NOT NULL,
    slots integer NOT NULL,
    busy integer NOT NULL DEFAULT 0,
    draining boolean NOT NULL DEFAULT false,
    lease_s double precision NOT NULL,
    version text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT workers_pkey PRIMARY KEY (id)
) WITH (fillfactor = 50);

-- Settings of a queue; a queue without a row has the defaults.
CREATE TABLE pgtasks.queues (
    name text COLLATE "C" NOT NULL,
    paused_at timestamptz,
    CONSTRAINT queues_pkey PRIMARY KEY (name),
    CONSTRAINT name_has_1_to_200_characters CHECK (length(name) BETWEEN 1 AND 200),
    CONSTRAINT name_has_no_control_characters CHECK (name !~ '[\x01-\x1f\x7f]')
);

-- What workers can run, upserted when one starts, so that SQL producers get the code's
-- defaults and the sweep knows a task's limit on attempts.
CREATE TABLE pgtasks.task_types (
    name text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    priority smallint NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL,
    timeout interval,
    retry jsonb NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT task_types_pkey PRIMARY KEY (name)
);

-- The doorbell's producer half (pgtasks/engine/bell.py has the protocol and its proof).
-- Got the shared lock: nobody sleeps on this queue, say nothing; the lock stays until
-- this transaction ends and keeps anyone from falling asleep meanwhile. Did not get it:
-- somebody sleeps, ring. Once per statement and queue, whatever the number of rows. A statement
-- over more than a hundred queues rings for the rest without asking: each lock takes a place in
-- the server's lock table, which is not for one statement to fill.
-- 7074617 is the doorbell's namespace within the 64-bit advisory keys.
CREATE FUNCTION pgtasks.tasks_inserted() RETURNS trigger
LANGUAGE plpgsql
AS $$
DECLARE
    bell record;
BEGIN
    FOR bell IN
        SELECT i.queue, pg_catalog.row_number() OVER () OPERATOR(pg_catalog.<=) 100 AS is_asked
        FROM (SELECT DISTINCT inserted.queue FROM inserted) AS i
    LOOP
        IF bell.is_asked THEN
            CONTINUE WHEN pg_catalog.pg_try_advisory_xact_lock_shared(
                pg_catalog.hashtextextended(bell.queue, 7074617)
            );
        END IF;
        PERFORM pg_catalog.pg_notify('pgtasks', bell.queue);
    END LOOP;
    RETURN NULL;
END
$$;

CREATE TRIGGER tasks_inserted
AFTER INSERT ON pgtasks.tasks
REFERENCING NEW TABLE AS inserted
FOR EACH STATEMENT EXECUTE FUNCTION pgtasks.tasks_inserted();

-- The same for what becomes due without an INSERT: retry, resume, replace.
CREATE FUNCTION pgtasks.ring(queue text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock_shared(hashtextextended(queue, 7074617)) THEN
        PERFORM pg_notify('pgtasks', queue);
    END IF;
END
$$;

-- Adds one task and says whether it is new. A living task with the same unique_key is
-- left alone ('ignore') or, while it is still queued, takes over the new values ('replace').
--
-- The loop closes the gap between "somebody has this key" and "read its row": the other
-- task may finish in between, then this one is inserted after all. In READ COMMITTED each
-- statement sees what has been committed; in a stricter mode PostgreSQL itself reports a
-- serialization failure instead of looping.
CREATE FUNCTION pgtasks.enqueue_task(
    name text,
    payload jsonb DEFAULT '{}',
    queue text DEFAULT NULL,
    priority integer DEFAULT NULL,
    run_at timestamptz DEFAULT NULL,
    delay interval DEFAULT NULL,
    unique_key text DEFAULT NULL,
    max_attempts integer DEFAULT NULL,
    timeout interval DEFAULT NULL,
    headers jsonb DEFAULT NULL,
    on_conflict text DEFAULT 'ignore',
    OUT id bigint,
    OUT created boolean
)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    due timestamptz;
    known pgtasks.task_types%ROWTYPE;
BEGIN
    IF enqueue_task.name IS NULL THEN
        RAISE 'pgtasks: name must not be null' USING ERRCODE = '22004';
    ELSIF enqueue_task.run_at IS NOT NULL AND enqueue_task.delay IS NOT NULL THEN
        RAISE 'pgtasks: give run_at or delay, not both' USING ERRCODE = '22023';
    ELSIF enqueue_task.delay < interval '0' THEN
        RAISE 'pgtasks: delay must not be negative, got %', enqueue_task.delay USING ERRCODE = '22023';
    ELSIF enqueue_task.priority NOT BETWEEN -32768 AND 32767 THEN
        RAISE 'pgtasks: priority must be between -32768 and 32767, got %', enqueue_task.priority
            USING ERRCODE = '22023';
    ELSIF enqueue_task.on_conflict NOT IN ('ignore', 'replace', 'raise') THEN
        RAISE 'pgtasks: on_conflict must be ignore, replace or raise, got %', enqueue_task.on_conflict
            USING ERRCODE = '22023';
    END IF;
    SELECT * INTO known FROM pgtasks.task_types t WHERE t.name = enqueue_task.name;
    LOOP
        due := coalesce(enqueue_task.run_at, clock_timestamp() + coalesce(enqueue_task.delay, interval '0'));
        INSERT INTO pgtasks.tasks (
            name, payload, queue, priority, run_at, unique_key, max_attempts, timeout, headers
        ) VALUES (
            enqueue_task.name,
            coalesce(enqueue_task.payload, '{}'),
            coalesce(enqueue_task.queue, known.queue, 'default'),
            coalesce(enqueue_task.priority, known.priority, 0)::smallint,
            due,
            enqueue_task.unique_key,
            enqueue_task.max_attempts,
            enqueue_task.timeout,
            enqueue_task.headers
        )
        ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL DO NOTHING
        RETURNING tasks.id INTO enqueue_task.id;
        IF FOUND THEN
            created := true;
            RETURN;
        END IF;
        created := false;
        IF enqueue_task.on_conflict = 'replace' THEN
            UPDATE pgtasks.tasks t SET
                name = enqueue_task.name,
                payload = coalesce(enqueue_task.payload, '{}'),
                queue = coalesce(enqueue_task.queue, known.queue, 'default'),
                priority = coalesce(enqueue_task.priority, known.priority, 0)::smallint,
                run_at = due,
                attempt = 0,
                max_attempts = enqueue_task.max_attempts,
                timeout = enqueue_task.timeout,
                headers = enqueue_task.headers
            WHERE t.unique_key = enqueue_task.unique_key AND t.state = 'queued'
            RETURNING t.id, t.queue INTO enqueue_task.id, enqueue_task.queue;
            IF FOUND THEN
                PERFORM pgtasks.ring(enqueue_task.queue);
                RETURN;
            END IF;
        END IF;
        SELECT t.id INTO enqueue_task.id FROM pgtasks.tasks t WHERE t.unique_key = enqueue_task.unique_key;
        IF FOUND THEN
            IF enqueue_task.on_conflict = 'raise' THEN
                RAISE 'pgtasks: unique_key % belongs to living task %', enqueue_task.unique_key, enqueue_task.id
                    USING ERRCODE = '23505';
            END IF;
            RETURN;
        END IF;
    END LOOP;
END
$$;

-- Adds one task and returns its id: the living task's id where unique_key has one.
CREATE FUNCTION pgtasks.enqueue(
    name text,
    payload jsonb DEFAULT '{}',
    queue text DEFAULT NULL,
    priority integer DEFAULT NULL,
    run_at timestamptz DEFAULT NULL,
    delay interval DEFAULT NULL,
    unique_key text DEFAULT NULL,
    max_attempts integer DEFAULT NULL,
    timeout interval DEFAULT NULL,
    headers jsonb DEFAULT NULL,
    on_conflict text DEFAULT 'ignore'
) RETURNS bigint
LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT e.id FROM pgtasks.enqueue_task(
        name, payload, queue, priority, run_at, delay, unique_key, max_attempts, timeout, headers, on_conflict
    ) e
$$;

-- One element of enqueue_many().
CREATE FUNCTION pgtasks.enqueue_item(item jsonb, on_conflict text, OUT id bigint, OUT created boolean)
LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT t.id, t.created
    FROM pgtasks.enqueue_task(
        name => item ->> 'name',
        payload => coalesce(item -> 'payload', '{}'),
        queue => item ->> 'queue',
        priority => (item ->> 'priority')::integer,
        run_at => (item ->> 'run_at')::timestamptz,
        delay => make_interval(secs => (item ->> 'delay')::double precision),
        unique_key => item ->> 'unique_key',
        max_attempts => (item ->> 'max_attempts')::integer,
        timeout => make_interval(secs => (item ->> 'timeout')::double precision),
        headers => nullif(item -> 'headers', 'null'),
        on_conflict => enqueue_item.on_conflict
    ) t
$$;

-- Adds many tasks, given as a JSON array of objects whose keys are enqueue()'s argument
-- names (delay and timeout in seconds). All or nothing. Rows without unique_key go in with
-- one statement; those with one follow in the order of their keys, which is the lock order
-- of everybody who adds several keys at once. Only when something is wrong are the rows
-- tried one by one, to name the position of the bad one.
CREATE FUNCTION pgtasks.enqueue_many(tasks jsonb, on_conflict text DEFAULT 'ignore')
RETURNS TABLE (ordinal bigint, id bigint, created boolean)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    item record;
    wrong record;
BEGIN
    IF jsonb_typeof(enqueue_many.tasks) IS DISTINCT FROM 'array' THEN
        RAISE 'pgtasks: enqueue_many takes a JSON array of objects, got %',
            coalesce(jsonb_typeof(enqueue_many.tasks), 'null') USING ERRCODE = '22023';
    END IF;
    SELECT e.ordinality - 1 AS place, k.key INTO wrong
    FROM jsonb_array_elements(enqueue_many.tasks) WITH ORDINALITY e
    CROSS JOIN LATERAL jsonb_object_keys(
        CASE jsonb_typeof(e.value) WHEN 'object' THEN e.value ELSE jsonb_build_object(e.value::text, 0) END
    ) k (key)
    WHERE k.key NOT IN (
        'name', 'payload', 'queue', 'priority', 'run_at', 'delay', 'unique_key', 'max_attempts', 'timeout', 'headers'
    )
    LIMIT 1;
    IF FOUND THEN
        RAISE 'pgtasks: tasks[%]: not an object with known keys, found %', wrong.place, left(wrong.key, 100)
            USING ERRCODE = '22023',
            HINT = 'keys: name, payload, queue, priority, run_at, delay, unique_key, max_attempts, timeout, headers';
    END IF;
    RETURN QUERY
    WITH input AS MATERIALIZED (
        SELECT nextval('pgtasks.tasks_id_seq') AS id, e.ordinality, e.value AS v
        FROM jsonb_array_elements(enqueue_many.tasks) WITH ORDINALITY e
        WHERE e.value ->> 'unique_key' IS NULL
    ),
    added AS (
        INSERT INTO pgtasks.tasks (
            id, name, payload, queue, priority, run_at, max_attempts, timeout, headers
        ) OVERRIDING SYSTEM VALUE
        SELECT
            i.id,
            i.v ->> 'name',
            coalesce(i.v -> 'payload', '{}'),
            coalesce(i.v ->> 'queue', known.queue, 'default'),
            coalesce((i.v ->> 'priority')::smallint, known.priority, 0),
            CASE
                WHEN i.v ->> 'delay' IS NULL THEN coalesce((i.v ->> 'run_at')::timestamptz, clock_timestamp())
                -- NULL, which the column refuses: run_at and delay exclude each other, and
                -- a delay is not negative.
                WHEN i.v ->> 'run_at' IS NULL AND (i.v ->> 'delay')::double precision >= 0
                    THEN clock_timestamp() + make_interval(secs => (i.v ->> 'delay')::double precision)
            END,
            (i.v ->> 'max_attempts')::integer,
            make_interval(secs => (i.v ->> 'timeout')::double precision),
            nullif(i.v -> 'headers', 'null')
        FROM input i LEFT JOIN pgtasks.task_types known ON known.name = i.v ->> 'name'
    )
    SELECT i.ordinality, i.id, true FROM input i;
    FOR item IN
        SELECT e.ordinality, e.value AS v FROM jsonb_array_elements(enqueue_many.tasks) WITH ORDINALITY e
        WHERE e.value ->> 'unique_key' IS NOT NULL
        ORDER BY e.value ->> 'unique_key' COLLATE "C", e.ordinality
    LOOP
        ordinal := item.ordinality;
        SELECT t.id, t.created INTO enqueue_many.id, enqueue_many.created
        FROM pgtasks.enqueue_item(item.v, enqueue_many.on_conflict) t;
        RETURN NEXT;
    END LOOP;
EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
    IF SQLERRM LIKE 'pgtasks: tasks[%' OR SQLERRM LIKE 'pgtasks: enqueue_many%' THEN
        RAISE;
    END IF;
    FOR item IN
        SELECT e.ordinality, e.value AS v FROM jsonb_array_elements(enqueue_many.tasks) WITH ORDINALITY e
    LOOP
        BEGIN
            PERFORM pgtasks.enqueue_item(item.v, enqueue_many.on_conflict);
        EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
            RAISE 'pgtasks: tasks[%]: %', item.ordinality - 1, SQLERRM USING ERRCODE = SQLSTATE;
        END;
    END LOOP;
    RAISE;
END
$$;

-- Cancels a task. 'cancelled': it was waiting and is now in history. 'requested': it is
-- running; its worker is told. 'finished': too late. NULL: no such task.
--
-- Each step is one guarded statement; a task that changes state between two steps is met
-- by the next turn of the loop.
CREATE FUNCTION pgtasks.cancel(id bigint) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    LOOP
        WITH gone AS (
            DELETE FROM pgtasks.tasks t WHERE t.id = cancel.id AND t.state = 'queued' RETURNING t.*
        )
        INSERT INTO pgtasks.history (
            id, created_at, run_at, attempt, max_attempts, priority, status, queue, name, payload, unique_key,
            error, headers
        )
        SELECT g.id, g.created_at, g.run_at, g.attempt, g.max_attempts, g.priority, 'cancelled', g.queue, g.name,
            g.payload, g.unique_key, 'cancelled before it ran', g.headers
        FROM gone g;
        IF FOUND THEN
            RETURN 'cancelled';
        END IF;
        UPDATE pgtasks.tasks t SET cancel_requested_at = coalesce(t.cancel_requested_at, clock_timestamp())
        WHERE t.id = cancel.id AND t.state = 'running';
        IF FOUND THEN
            PERFORM pg_notify('pgtasks_cancel', cancel.id::text);
            RETURN 'requested';
        END IF;
        IF NOT EXISTS (SELECT 1 FROM pgtasks.tasks t WHERE t.id = cancel.id) THEN
            IF EXISTS (SELECT 1 FROM pgtasks.history h WHERE h.id = cancel.id)
                OR EXISTS (SELECT 1 FROM pgtasks.dead_letters d WHERE d.id = cancel.id) THEN
                RETURN 'finished';
            END IF;
            RETURN NULL;
        END IF;
    END LOOP;
END
$$;

-- Runs a task again now. 'due': it was waiting and is due now. 'replayed': it was a dead
-- letter and is queued again with fresh attempts; it moved, it was not copied.
-- 'running' or 'finished': nothing was changed, nor by 'unique_key_taken': a living task has
-- the dead letter's key. NULL: no such task.
--
-- What is overdue keeps its run_at and so its place: workers that passed it look back for it,
-- and a sleeping one is woken. The insert of a replay comes first and the delete takes what was
-- inserted, so a key that is taken at this very moment keeps its dead letter.
CREATE FUNCTION pgtasks.retry(id bigint) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    its_queue text;
BEGIN
    UPDATE pgtasks.tasks t SET run_at = least(t.run_at, clock_timestamp())
    WHERE t.id = retry.id AND t.state = 'queued'
    RETURNING t.queue INTO its_queue;
    IF FOUND THEN
        PERFORM pgtasks.ring(its_queue);
        RETURN 'due';
    END IF;
    PERFORM 1 FROM pgtasks.tasks t WHERE t.id = retry.id;
    IF FOUND THEN
        RETURN 'running';
    END IF;
    WITH picked AS MATERIALIZED (
        SELECT d.* FROM pgtasks.dead_letters d WHERE d.id = retry.id FOR UPDATE
    ),

    added AS (
        INSERT INTO pgtasks.tasks (
            id, queue, name, payload, priority, max_attempts, timeout, unique_key, created_at, headers
        ) OVERRIDING SYSTEM VALUE
        SELECT p.id, p.queue, p.name, p.payload, p.priority, p.max_attempts, p.timeout, p.unique_key, p.created_at,
            p.headers
        FROM picked p
        ON CONFLICT DO NOTHING
        RETURNING id
    )

    DELETE FROM pgtasks.dead_letters d USING added a WHERE d.id = a.id;
    IF FOUND THEN
        RETURN 'replayed';
    END IF;
    PERFORM 1 FROM pgtasks.dead_letters d WHERE d.id = retry.id;
    IF FOUND THEN
        RETURN 'unique_key_taken';
    END IF;
    -- Somebody else replayed it while this call waited for them.
    PERFORM 1 FROM pgtasks.tasks t WHERE t.id = retry.id;
    IF FOUND THEN
        RETURN 'due';
    END IF;
    PERFORM 1 FROM pgtasks.history h WHERE h.id = retry.id;
    RETURN CASE WHEN FOUND THEN 'finished' END;
END
$$;

-- Stops claims from a queue, for all workers, from their next claim on. Running tasks go on.
-- True when this call paused it, false when it was paused already.
CREATE FUNCTION pgtasks.pause(queue text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO pgtasks.queues AS q (name, paused_at) VALUES (queue, clock_timestamp())
    ON CONFLICT (name) DO UPDATE SET paused_at = excluded.paused_at WHERE q.paused_at IS NULL;
    RETURN FOUND;
END
$$;

-- Lets claims from a queue go on. True when this call resumed it, false when it was not paused.
CREATE FUNCTION pgtasks.resume(queue text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE pgtasks.queues q SET paused_at = NULL WHERE q.name = queue AND q.paused_at IS NOT NULL;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM pgtasks.ring(queue);
    RETURN true;
END
$$;

-- How many tasks of a queue are due and waiting; what an autoscaler asks. Exact up to
-- 100,000, never more: beyond that the answer to "do we need more workers" is yes.
CREATE FUNCTION pgtasks.backlog(queue text) RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT count(*) FROM (
        SELECT FROM pgtasks.tasks t
        WHERE t.queue = backlog.queue AND t.state = 'queued' AND t.run_at <= statement_timestamp()
        ORDER BY t.priority DESC, t.run_at, t.id
        LIMIT 100000
    ) waiting
$$;

-- Creates the day partitions of history and attempts from today (UTC) on; returns how many.
-- Workers call it when they start and every few minutes; a database without workers can
-- call it from any scheduler. If nobody does, rows go to the default partition: nothing is
-- lost, and a day that already has rows there stays there.
--
-- ATTACH takes only SHARE UPDATE EXCLUSIVE on the parent, so claims and completions go on;
-- the short lock_timeout keeps it from queueing behind a long reader of the default partition.
CREATE FUNCTION pgtasks.create_partitions(days_ahead integer DEFAULT 3) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC'
SET lock_timeout = '1s'
AS $$
DECLARE
    parent text;
    day date;
    child text;
    taken boolean;
    made integer := 0;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('create_partitions', 7074618)) THEN
        RETURN 0;
    END IF;
    FOREACH parent IN ARRAY ARRAY['history', 'attempts'] LOOP
        FOR day IN
            SELECT current_date + n FROM generate_series(0, least(days_ahead, 366)) n
        LOOP
            child := parent || '_' || to_char(day, 'YYYYMMDD');
            CONTINUE WHEN to_regclass(format('pgtasks.%I', child)) IS NOT NULL;
            EXECUTE format(
                'SELECT EXISTS (SELECT FROM pgtasks.%I WHERE finished_at >= $1 AND finished_at < $2)',
                parent || '_default'
            ) INTO taken USING day::timestamptz, (day + 1)::timestamptz;
            CONTINUE WHEN taken;
            EXECUTE format('CREATE TABLE pgtasks.%I (LIKE pgtasks.%I INCLUDING ALL)', child, parent);
            EXECUTE format(
                'ALTER TABLE pgtasks.%I ATTACH PARTITION pgtasks.%I FOR VALUES FROM (%L) TO (%L)',
                parent, child, day::timestamptz, (day + 1)::timestamptz
            );
            made := made + 1;
        END LOOP;
    END LOOP;
    RETURN made;
END
$$;

-- The read contract: every task, wherever it is stored, with the status shown to people.
CREATE VIEW pgtasks.all_tasks AS
SELECT
    t.id,
    t.queue,
    t.name,
    CASE
        WHEN t.state = 'running' THEN 'running'
        WHEN t.attempt > 0 THEN 'retrying'
        WHEN t.run_at > statement_timestamp() THEN 'scheduled'
        ELSE 'queued'
    END AS status,
    t.payload,
    NULL::jsonb AS result,
    t.attempt,
    t.max_attempts,
    t.priority,
    t.run_at,
    t.created_at,
    t.claimed_at AS started_at,
    NULL::timestamptz AS finished_at,
    CASE WHEN t.attempt > 0 THEN (
        SELECT a.error FROM pgtasks.attempts AS a WHERE a.task_id = t.id ORDER BY a.finished_at DESC LIMIT 1
    ) END AS error,
    (SELECT l.worker_id FROM pgtasks.leases AS l WHERE l.id = t.lease_id) AS worker,
    t.unique_key,
    t.headers
FROM pgtasks.tasks AS t
UNION ALL
SELECT
    h.id,
    h.queue,
    h.name,
    h.status,
    h.payload,
    h.result,
    h.attempt,
    h.max_attempts,
    h.priority,
    h.run_at,
    h.created_at,
    h.started_at,
    h.finished_at,
    h.error,
    h.worker_id AS worker,
    h.unique_key,
    h.headers
FROM pgtasks.history AS h
UNION ALL
SELECT
    d.id,
    d.queue,
    d.name,
    'dead' AS status,
    d.payload,
    NULL::jsonb AS result,
    d.attempt,
    d.max_attempts,
    d.priority,
    d.run_at,
    d.created_at,
    d.started_at,
    d.finished_at,
    d.error,
    d.worker_id AS worker,
    d.unique_key,
    d.headers
FROM pgtasks.dead_letters AS d;

-- One row per queue. Counts are exact up to 100,000 live tasks of a queue; beyond that they
-- are extrapolated from a sample of pages and `estimated` is true, so that the view costs
-- the same with a thousand tasks and with fifty million.
CREATE VIEW pgtasks.queue_stats AS
WITH RECURSIVE live (queue) AS (
    -- A loose index scan: one probe per queue, whatever the number of tasks.
    (SELECT t.queue FROM pgtasks.tasks AS t ORDER BY t.queue LIMIT 1)
    UNION ALL
    SELECT (SELECT t.queue FROM pgtasks.tasks AS t WHERE t.queue > l.queue ORDER BY t.queue LIMIT 1)
    FROM live AS l
    WHERE l.queue IS NOT NULL
),

names (queue) AS (
    SELECT l.queue FROM live AS l WHERE l.queue IS NOT NULL
    UNION
    SELECT q.name FROM pgtasks.queues AS q
    UNION
    SELECT tt.queue FROM pgtasks.task_types AS tt
    UNION
    SELECT d.queue FROM pgtasks.dead_letters AS d
    UNION
    SELECT unnest(w.queues) FROM pgtasks.workers AS w
),

sample (percentage) AS (
    SELECT least(100, 100 * 2048.0 / greatest(1, pg_relation_size('pgtasks.tasks') / 8192))::double precision
),

dead (queue, dead) AS (
    SELECT d.queue, count(*) FROM pgtasks.dead_letters AS d GROUP BY d.queue
)

SELECT
    n.queue,
    q.paused_at,
    coalesce((s.scheduled * 100 / sample.percentage)::bigint, c.scheduled) AS scheduled,
    coalesce((s.queued * 100 / sample.percentage)::bigint, c.queued) AS queued,
    c.running,
    coalesce((s.retrying * 100 / sample.percentage)::bigint, c.retrying) AS retrying,
    coalesce(d.dead, 0) AS dead,
    c.total > 100000 AS estimated,
    o.oldest_waiting_since
FROM names AS n
LEFT JOIN pgtasks.queues AS q ON n.queue = q.name
LEFT JOIN dead AS d ON n.queue = d.queue
CROSS JOIN sample
CROSS JOIN LATERAL (
    SELECT
        count(*) AS total,
        count(*) FILTER (WHERE x.state = 'running') AS running,
        count(*) FILTER (WHERE x.state = 'queued' AND x.attempt > 0) AS retrying,
        count(*) FILTER (
            WHERE x.state = 'queued' AND x.attempt = 0 AND x.run_at > statement_timestamp()
        ) AS scheduled,
        count(*) FILTER (
            WHERE x.state = 'queued' AND x.attempt = 0 AND x.run_at <= statement_timestamp()
        ) AS queued
    FROM (
        SELECT t.state, t.attempt, t.run_at
        FROM pgtasks.tasks AS t
        WHERE t.queue = n.queue
        ORDER BY t.priority DESC, t.run_at, t.id
        LIMIT 100001
    ) AS x
) AS c
LEFT JOIN LATERAL (
    SELECT
        count(*) FILTER (WHERE t.state = 'queued' AND t.attempt > 0) AS retrying,
        count(*) FILTER (
            WHERE t.state = 'queued' AND t.attempt = 0 AND t.run_at > statement_timestamp()
        ) AS scheduled,
        count(*) FILTER (
            WHERE t.state = 'queued' AND t.attempt = 0 AND t.run_at <= statement_timestamp()
        ) AS queued
    -- The linter knows TABLESAMPLE only before an alias, where PostgreSQL does not take it.
    FROM pgtasks.tasks AS t TABLESAMPLE SYSTEM (sample.percentage) -- noqa: PRS
    WHERE t.queue = n.queue AND c.total > 100000
) AS s ON c.total > 100000
LEFT JOIN LATERAL (
    -- The oldest due task of each of the first priorities in use; the oldest of those.
    WITH RECURSIVE lanes (priority, step) AS (
        (
            SELECT t.priority, 1 FROM pgtasks.tasks AS t
            WHERE t.queue = n.queue ORDER BY t.priority DESC LIMIT 1
        )
        UNION ALL
        SELECT
            (
                SELECT t.priority FROM pgtasks.tasks AS t
                WHERE t.queue = n.queue AND t.priority < l.priority ORDER BY t.priority DESC LIMIT 1
            ),
            l.step + 1
        FROM lanes AS l
        WHERE l.priority IS NOT NULL AND l.step < 100
    )

    SELECT min(f.run_at) AS oldest_waiting_since
    FROM lanes AS l
    CROSS JOIN LATERAL (
        SELECT t.run_at FROM pgtasks.tasks AS t
        WHERE t.queue = n.queue AND t.priority = l.priority
            AND t.state = 'queued' AND t.run_at <= statement_timestamp()
        ORDER BY t.run_at LIMIT 1
    ) AS f
) AS o ON true;

-- One row per worker process; alive means that its heartbeat came within its own lease.
CREATE VIEW pgtasks.worker_stats AS
SELECT
    w.id,
    w.name,
    w.queues,
    w.names,
    w.slots,
    w.busy,
    w.draining,
    w.version,
    w.started_at,
    w.last_seen_at,
    w.last_seen_at > clock_timestamp() - make_interval(secs => w.lease_s) AS alive,
    (
        SELECT count(*) FROM pgtasks.leases AS l
        WHERE l.worker_id = w.id AND l.expires_at < clock_timestamp()
    ) AS expired_leases
FROM pgtasks.workers AS w;

-- Functions that run as their owner are for those who were granted them, nobody else.
REVOKE ALL ON FUNCTION pgtasks.ring(text) FROM public;
REVOKE ALL ON FUNCTION pgtasks.enqueue_task(
    text, jsonb, text, integer, timestamptz, interval, text, integer, interval, jsonb, text
) FROM public;
REVOKE ALL ON FUNCTION pgtasks.enqueue(
    text, jsonb, text, integer, timestamptz, interval, text, integer, interval, jsonb, text
) FROM public;
REVOKE ALL ON FUNCTION pgtasks.enqueue_item(jsonb, text) FROM public;
REVOKE ALL ON FUNCTION pgtasks.enqueue_many(jsonb, text) FROM public;
REVOKE ALL ON FUNCTION pgtasks.cancel(bigint) FROM public;
REVOKE ALL ON FUNCTION pgtasks.retry(bigint) FROM public;
REVOKE ALL ON FUNCTION pgtasks.pause(text) FROM public;
REVOKE ALL ON FUNCTION pgtasks.resume(text) FROM public;
REVOKE ALL ON FUNCTION pgtasks.backlog(text) FROM public;
REVOKE ALL ON FUNCTION pgtasks.create_partitions(integer) FROM public;
