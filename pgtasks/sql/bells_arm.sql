-- The sleeper's half of the doorbell (pgtasks/engine/bell.py): tries to take the queues' bells,
-- all that are free, or none if a producer's transaction is in flight in one of them.
--
-- Parameters: queues. Returns one row per queue: queue; armed (taken by this session now);
-- held (somebody else has it exclusively, who is asleep). Neither means that the worker has to
-- stay awake. What was taken for nothing is given back within the statement, so that others
-- do not take it for the bell of a sleeper; so is a shared lock that was got for the test.
-- 7074617 is the doorbell's namespace, as in the trigger.
SELECT
    s.queue,
    CASE
        WHEN s.armed AND s.in_flight THEN NOT pg_advisory_unlock(hashtextextended(s.queue, 7074617))
        ELSE s.armed
    END AS armed,
    s.held
FROM (
    SELECT
        h.queue,
        h.armed,
        h.held,
        bool_or(NOT h.armed AND NOT h.held) OVER () AS in_flight
    FROM (
        SELECT
            b.queue,
            b.armed,
            CASE
                WHEN b.armed THEN false
                WHEN pg_try_advisory_lock_shared(hashtextextended(b.queue, 7074617))
                    THEN NOT pg_advisory_unlock_shared(hashtextextended(b.queue, 7074617))
                ELSE true
            END AS held
        FROM (
            SELECT
                q.queue,
                pg_try_advisory_lock(hashtextextended(q.queue, 7074617)) AS armed
            FROM unnest(%(queues)s::text[] COLLATE "C") AS q (queue)
            OFFSET 0
        ) AS b
        OFFSET 0
    ) AS h
) AS s
