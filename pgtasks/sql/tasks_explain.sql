-- Reads what decides when a living task runs: its own state, its queue, the workers that could
-- run it, and what comes before it.
--
-- Parameters: id; scan (rows looked at in each direction, so that a long queue costs no more).
-- Returns one ExplainRow, or none when no living task has this id.
-- Index: tasks_pkey, also once per running task; leases_pkey; tasks_claim_order twice, each stopped after `scan` rows.
--
-- What comes before it is what a claim takes first: due tasks of a higher priority, and due
-- tasks of the same priority with an earlier (run_at, id); only names that a live worker of the
-- queue knows, because nobody claims the others. `locked_by` is the session whose open
-- transaction has changed or locked the row: claims skip it (a row that several sessions share
-- has no single one, and then it is NULL).
--
-- `busy` counts what the leases of those workers hold now, and their stuck handlers; with more than
-- `scan` tasks running it is what the workers said last. The workers that claim (`able` and not
-- `draining`) are told apart by what keeps each from this task: nothing (`ready`), all its slots
-- are taken, all that the task's queue has there (`queue_full`), or all its child processes, where
-- the task needs one (`childless`). What a worker of an older version has not said (`silent`),
-- or what is not known with so many running, keeps it from nothing.
WITH task AS MATERIALIZED (
    SELECT
        t.id, t.queue, t.name, t.state, t.priority, t.run_at, t.attempt, t.losses, t.lease_id, t.claimed_at,
        t.cancel_requested_at, t.unique_key, t.xmax AS locker
    FROM pgtasks.tasks AS t
    WHERE t.id = %(id)s
),

held AS MATERIALIZED (
    SELECT l.worker_id, l.id AS lease_id, h.task_id
    FROM pgtasks.leases AS l
    CROSS JOIN LATERAL unnest(l.task_ids) AS h (task_id)
    LIMIT %(scan)s
),

running AS (
    SELECT
        h.worker_id,
        count(*) AS tasks,
        count(*) FILTER (WHERE t.queue = k.queue) AS in_queue,
        count(*) FILTER (WHERE t.losses > 0 OR t.name = ANY(w.isolated)) AS in_children
    FROM held AS h
    CROSS JOIN LATERAL (
        SELECT r.queue, r.name, r.losses
        FROM pgtasks.tasks AS r
        WHERE r.id = h.task_id AND r.lease_id = h.lease_id
        LIMIT 1
    ) AS t
    INNER JOIN pgtasks.workers AS w ON h.worker_id = w.id
    CROSS JOIN task AS k
    GROUP BY h.worker_id
),

alive AS MATERIALIZED (
    SELECT
        w.queues, w.names, w.slots, w.draining, w.children,
        w.queue_slots IS NULL AS is_silent,
        w.queue_slots[array_position(w.queues, k.queue)] AS queue_slots,
        CASE WHEN f.is_known THEN coalesce(r.in_queue, 0) END AS queue_busy,
        CASE WHEN f.is_known THEN coalesce(r.in_children, 0) END AS children_busy,
        CASE WHEN f.is_known THEN least(w.slots, coalesce(r.tasks, 0) + w.stuck) ELSE w.busy END AS busy,
        k.losses > 0 OR coalesce(k.name = ANY(w.isolated), false) AS needs_child,
        k.queue = ANY(w.queues) AS is_serving, k.name = ANY(w.names) AS is_knowing
    FROM pgtasks.workers AS w
    CROSS JOIN task AS k
    CROSS JOIN (SELECT count(*) < %(scan)s AS is_known FROM held) AS f
    LEFT JOIN running AS r ON w.id = r.worker_id
    WHERE w.last_seen_at > clock_timestamp() - make_interval(secs => w.lease_s)
),

-- Those that would claim it, by what keeps each of them from that; the first that holds.
claiming AS MATERIALIZED (
    SELECT
        a.queue_slots, a.children, a.is_silent,
        CASE
            WHEN a.busy >= a.slots THEN 'busy'
            WHEN a.queue_busy >= a.queue_slots THEN 'queue_full'
            WHEN a.needs_child AND a.children_busy >= a.children THEN 'childless'
            ELSE 'ready'
        END AS state
    FROM alive AS a
    WHERE a.is_serving AND a.is_knowing AND NOT a.draining
),

known AS MATERIALIZED (
    SELECT DISTINCT n.name
    FROM alive AS a
    CROSS JOIN LATERAL unnest(a.names) AS n (name)
    WHERE a.is_serving
)

SELECT
    clock_timestamp() AS now,
    k.state,
    extract(EPOCH FROM k.run_at - clock_timestamp())::double precision AS due_in_s,
    k.attempt,
    k.losses,
    k.claimed_at,
    k.cancel_requested_at,
    k.unique_key,
    q.paused_at,
    EXISTS(SELECT FROM pgtasks.task_types AS tt WHERE tt.name = k.name) AS registered,
    (SELECT count(*) FROM alive AS a WHERE a.is_serving) AS serving,
    (SELECT count(*) FROM alive AS a WHERE a.is_serving AND a.is_knowing) AS able,
    (SELECT count(*) FROM alive AS a WHERE a.is_serving AND a.is_knowing AND a.draining) AS draining,
    (SELECT coalesce(sum(a.slots), 0)::bigint FROM alive AS a WHERE a.is_serving AND a.is_knowing) AS slots,
    (SELECT coalesce(sum(a.busy), 0)::bigint FROM alive AS a WHERE a.is_serving AND a.is_knowing) AS busy,
    (SELECT count(*) FROM claiming AS c WHERE c.state = 'ready') AS ready,
    (SELECT count(*) FROM claiming AS c WHERE c.is_silent) AS silent,
    (SELECT count(*) FROM claiming AS c WHERE c.state = 'queue_full') AS queue_full,
    (SELECT coalesce(sum(c.queue_slots), 0)::bigint FROM claiming AS c WHERE c.state = 'queue_full') AS queue_slots,
    (SELECT count(*) FROM claiming AS c WHERE c.state = 'childless') AS childless,
    (SELECT coalesce(sum(c.children), 0)::bigint FROM claiming AS c WHERE c.state = 'childless') AS children,
    (
        SELECT coalesce(array_agg(DISTINCT s.queue), '{}')
        FROM alive AS a
        CROSS JOIN LATERAL unnest(a.queues) AS s (queue)
        WHERE a.is_knowing AND NOT a.is_serving
    ) AS known_in_queues,
    l.expires_at AS lease_expires_at,
    coalesce(w.name, l.worker_id::text) AS worker,
    w.last_seen_at AS worker_seen_at,
    locker.pid AS locked_by,
    higher.due AS higher,
    higher.looked_at > %(scan)s AS higher_is_least,
    earlier.due AS earlier,
    earlier.looked_at > %(scan)s AS earlier_is_least
FROM task AS k
LEFT JOIN pgtasks.queues AS q ON k.queue = q.name
LEFT JOIN pgtasks.leases AS l ON k.lease_id = l.id
LEFT JOIN pgtasks.workers AS w ON l.worker_id = w.id
LEFT JOIN LATERAL (
    SELECT min(p.pid) AS pid
    FROM pg_locks AS p
    WHERE p.locktype = 'transactionid' AND p.transactionid = k.locker AND p.granted AND p.mode = 'ExclusiveLock'
) AS locker ON true
CROSS JOIN LATERAL (
    SELECT
        count(*) AS looked_at,
        count(*) FILTER (
            WHERE s.state = 'queued' AND s.run_at <= clock_timestamp() AND s.name IN (SELECT n.name FROM known AS n)
        ) AS due
    FROM (
        SELECT t.state, t.run_at, t.name
        FROM pgtasks.tasks AS t
        WHERE t.queue = k.queue AND t.priority > k.priority
        ORDER BY t.priority DESC, t.run_at, t.id
        LIMIT %(scan)s + 1
    ) AS s
) AS higher
CROSS JOIN LATERAL (
    SELECT
        count(*) AS looked_at,
        count(*) FILTER (WHERE s.state = 'queued' AND s.name IN (SELECT n.name FROM known AS n)) AS due
    FROM (
        SELECT t.state, t.name
        FROM pgtasks.tasks AS t
        WHERE t.queue = k.queue AND t.priority = k.priority AND (t.run_at, t.id) < (k.run_at, k.id)
        ORDER BY t.run_at DESC, t.id DESC
        LIMIT %(scan)s + 1
    ) AS s
) AS earlier
