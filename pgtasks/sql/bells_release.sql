-- Gives every bell of this session back and rings them: the worker wakes up, and
-- those who relied on its bell must look for themselves (pgtasks/engine/bell.py).
--
-- Parameters: ring (their queues). Returns one row, which says nothing. The session holds no other
-- session-level advisory lock.
--
-- Shape: a notification makes this a transaction with a record in the WAL, and a commit that
-- waited for the disk would hold the lock that serialises all notifying transactions meanwhile.
-- Nothing here is worth a wait: what a crash loses, its end of all sessions loses too.
SELECT
    set_config('synchronous_commit', 'off', true) AS hurried,
    pg_advisory_unlock_all() AS released,
    (SELECT count(pg_notify('pgtasks', r.queue)) FROM unnest(%(ring)s::text[]) AS r (queue)) AS rung
