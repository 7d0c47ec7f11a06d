-- Takes a worker that stopped off the list; its leases, if any are left, expire by themselves.
--
-- Parameters: worker_id. Returns nothing. Index: workers_pkey.
DELETE FROM pgtasks.workers WHERE id = %(worker_id)s::uuid
