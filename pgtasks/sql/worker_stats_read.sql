-- Lists the workers, the live ones first.
--
-- Parameter: limit. Returns the columns of WorkerRow. Reads a small view: one row per process.
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
    w.alive,
    w.expired_leases
FROM pgtasks.worker_stats AS w
ORDER BY w.alive DESC, w.name, w.started_at, w.id
LIMIT %(limit)s
