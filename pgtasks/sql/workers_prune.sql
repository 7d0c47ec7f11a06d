-- Forgets workers that have been silent for an hour and hold no lease.
--
-- Returns nothing. Reads the whole table, which has one row per process.
DELETE FROM pgtasks.workers AS w
WHERE w.last_seen_at < clock_timestamp() - interval '1 hour'
    AND NOT EXISTS (SELECT FROM pgtasks.leases AS l WHERE l.worker_id = w.id)
