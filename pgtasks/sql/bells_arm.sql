-- The sleeper's half of the doorbell (pgtasks/engine/bell.py): tries to take each queue's bell.
--
-- Parameters: queues. Returns one row per queue: queue; armed (taken by this session now);
-- held (not taken, and somebody else has it exclusively, who is asleep). Neither means that a
-- producer's transaction is in flight. A shared lock that was got for the test is given back.
-- 7074617 is the doorbell's namespace, as in the trigger.
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
