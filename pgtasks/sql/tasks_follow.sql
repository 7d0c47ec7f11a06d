-- Claims up to a limit of due tasks of one queue, from behind what other workers with the same handlers claimed last.
--
-- Many workers of one queue stand behind each other: where ten take turns, a claim from a worker's own cursor
-- walks over what the nine others have claimed since its last one, nine rows for each that it gets, and with
-- sixty workers it walks sixty. This one begins at the front. The others looked at what it leaves out, or passed
-- it; who has gone back to what was passed does not follow (pgtasks/engine/cursor.py).
--
-- Parameters: as tasks_claim.sql (queue; limit; names; worker_id; lease_s; priorities, run_ats, ids); and
-- after_lease (that of this worker's last claim: later ones are followed).
-- Returns the claimed rows, in any order.
-- Index: leases_pkey backwards, at most 20 leases and no further than after_lease; for each, tasks_pkey for its last
-- task and workers_pkey for its worker. Then as tasks_claim.sql.
--
-- Where the front is: the task with the highest id of the newest lease (mostly its last in claim order), if it is
-- still that lease's (a task that was retried has another run_at, later than now), of this queue, and no suspect
-- (those are claimed out of turn). Its worker has to have the same handlers, as another would have left tasks of ours
-- behind; the columns of names are sorted. It moves the lane of that task's priority, and only forward. Where
-- nothing of that is found, the claim is one from the cursor. A lease that is not committed yet shows nothing: its
-- rows are skipped one by one.
--
-- What is in flight: the others' claims of this moment, whose rows lie right behind the front. To try to lock such a
-- row and skip it takes two locks of the lock manager, 1 to 1.5 us in place of 0.3; where ten workers share two cores
-- these are three rows for each that is claimed. So a row with the mark (xmax) of a transaction that was in progress
-- when this statement began, or of one begun since, is left out before. SKIP LOCKED would mostly do the same. Not
-- where that transaction only refers to the task (a foreign key's FOR KEY SHARE) or was rolled back; and the number of
-- a multixact, which may stand there too, can be one of these by chance. A million is more than begin meanwhile, and
-- keeps that chance small. Who goes back for such rows claims from its cursor, and tries each. (A row that somebody
-- changes and leaves queued between our snapshot and our lock is left out too: when it is checked again, locked, its
-- mark is ours.)
--
-- What is passed that way and still there (one of these; the claim of another was rolled back; a row was committed
-- late) is found by the next look from the head, as everything is that a cursor passed (pgtasks/engine/cursor.py).
--
-- Shape: as tasks_claim.sql, and nothing about tasks that the planner could turn round: LIMIT keeps a LATERAL
-- from being pulled up, and conditions from being pushed in. The lanes are a step of their own, as otherwise
-- each row that is found goes through a Memoize, for nothing.
WITH front AS MATERIALIZED (
    SELECT reached.priority, reached.run_at, reached.id
    FROM (
        SELECT l.id, l.worker_id, l.task_ids[cardinality(l.task_ids)] AS task_id
        FROM pgtasks.leases AS l
        WHERE l.id > %(after_lease)s
        ORDER BY l.id DESC
        LIMIT 20
    ) AS later
    CROSS JOIN LATERAL (
        SELECT t.id, t.queue, t.priority, t.run_at, t.name, t.losses, t.lease_id, later.worker_id
        FROM pgtasks.tasks AS t
        WHERE t.id = later.task_id
        LIMIT 1
    ) AS reached
    CROSS JOIN LATERAL (
        SELECT w.names, w.isolated
        FROM pgtasks.workers AS w
        WHERE w.id = reached.worker_id
        LIMIT 1
    ) AS other
    WHERE reached.lease_id = later.id
        AND reached.queue = %(queue)s
        AND reached.losses = 0
        AND reached.name = ANY(%(names)s::text[])
        AND reached.run_at <= statement_timestamp()
        AND (other.names, coalesce(other.isolated, '{}')) = (
            SELECT me.names, coalesce(me.isolated, '{}') FROM pgtasks.workers AS me WHERE me.id = %(worker_id)s
        )
    ORDER BY later.id DESC
    LIMIT 1
),

lane AS MATERIALIZED (
    SELECT further.priority, further.run_at, further.id
    FROM unnest(
        %(priorities)s::smallint[], %(run_ats)s::timestamptz[], %(ids)s::bigint[]
    ) AS own (priority, run_at, id)
    CROSS JOIN LATERAL (
        SELECT place.priority, place.run_at, place.id
        FROM (
            SELECT own.priority, own.run_at, own.id
            UNION ALL
            SELECT f.priority, f.run_at, f.id FROM front AS f WHERE f.priority = own.priority
        ) AS place
        ORDER BY place.run_at DESC, place.id DESC
        LIMIT 1
    ) AS further
),

in_flight AS MATERIALIZED (
    SELECT
        array(SELECT begun.xid::xid FROM pg_snapshot_xip(snapshot.taken) AS begun (xid)) AS xids,
        age(pg_snapshot_xmax(snapshot.taken)::xid) AS age
    FROM pg_current_snapshot() AS snapshot (taken)
),

due AS MATERIALIZED (
    SELECT pick.id
    FROM lane
    CROSS JOIN LATERAL (
        SELECT t.id
        FROM pgtasks.tasks AS t
        WHERE t.queue = %(queue)s
            AND t.priority = lane.priority
            AND (t.run_at, t.id) > (lane.run_at, lane.id)
            AND t.run_at <= statement_timestamp()
            AND (
                t.xmax = '0'::xid
                OR (
                    t.xmax <> ALL((SELECT f.xids FROM in_flight AS f)::xid[])
                    AND age(t.xmax) NOT BETWEEN
                    (SELECT f.age - 1000000 FROM in_flight AS f) AND (SELECT f.age FROM in_flight AS f)
                )
            )
            AND t.state = 'queued'
            AND t.losses = 0
            AND t.name = ANY(%(names)s::text[])
        ORDER BY t.run_at, t.id
        LIMIT %(limit)s
        FOR NO KEY UPDATE OF t SKIP LOCKED
    ) AS pick
    WHERE NOT EXISTS (
        SELECT FROM pgtasks.queues AS q WHERE q.name = %(queue)s AND q.paused_at IS NOT NULL
    )
    LIMIT %(limit)s
),

lease AS (
    INSERT INTO pgtasks.leases (worker_id, expires_at, task_ids)
    SELECT
        %(worker_id)s,
        clock_timestamp() + make_interval(secs => %(lease_s)s),
        array_agg(due.id ORDER BY due.id)
    FROM due
    HAVING count(*) > 0
    RETURNING id, task_ids
)

UPDATE pgtasks.tasks AS t
SET
    state = 'running',
    attempt = least(t.attempt, 2147483646) + 1,
    lease_id = lease.id,
    claimed_at = clock_timestamp()
FROM lease
WHERE t.id = ANY(lease.task_ids)
RETURNING
    t.id, t.lease_id, t.name, t.payload::text, t.attempt, t.max_attempts,
    extract(EPOCH FROM t.timeout)::double precision AS timeout_s, t.priority, t.run_at, t.headers::text,
    t.losses
