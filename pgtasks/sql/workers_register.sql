-- Makes a worker known, or known again after its row was removed.
--
-- Parameters: the columns of pgtasks.workers. Returns nothing. Index: workers_pkey.
INSERT INTO pgtasks.workers (
    id, name, queues, names, slots, lease_s, version, queue_slots, children, isolated
)
VALUES (
    %(id)s, %(name)s, %(queues)s::text[], %(names)s::text[], %(slots)s, %(lease_s)s, %(version)s,
    %(queue_slots)s::integer[], %(children)s, %(isolated)s::text[]
)
ON CONFLICT (id) DO UPDATE SET last_seen_at = clock_timestamp()
