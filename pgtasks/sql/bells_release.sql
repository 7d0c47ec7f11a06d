-- Gives every bell of this session back and rings them: the worker wakes up, and
-- those who relied on its bell must look for themselves (pgtasks/engine/bell.py).
--
-- Parameters: ring (their queues). Returns one row, which says nothing. The session holds no other
-- session-level advisory lock.
SELECT
    pg_advisory_unlock_all() AS released,
    (SELECT count(pg_notify('pgtasks', r.queue)) FROM unnest(%(ring)s::text[]) AS r (queue)) AS rung
