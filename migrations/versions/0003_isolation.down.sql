-- Takes 0003_isolation back: nobody remembers whose process was lost.
DROP INDEX pgtasks.tasks_suspects;
-- A view can be given columns, but not be taken any.
DROP VIEW pgtasks.worker_stats;
ALTER TABLE pgtasks.workers DROP COLUMN stuck;

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

CREATE OR REPLACE FUNCTION pgtasks.enqueue_task(
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

CREATE OR REPLACE FUNCTION pgtasks.retry(id bigint) RETURNS text
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

ALTER TABLE pgtasks.tasks DROP COLUMN losses;
