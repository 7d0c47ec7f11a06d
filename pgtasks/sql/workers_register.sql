-- Makes a worker known, or known again after its row was removed.
--
-- Parameters: the columns of pgtasks.workers. Returns nothing. Index: workers_pkey.
INSERT INTO pgtasks.workers (id, name, queues, names, slots, lease_s, version)
VALUES (
    %(id)s, %(name)s, %(queues)s::text[], %(names)s::text[], %(slots)s, %(lease_s)s, %(version)s
)
ON CONFLICT (id) DO UPDATE SET last_seen_at = clock_timestamp()
