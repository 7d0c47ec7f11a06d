-- Gives every bell of this session back: the worker is awake.
--
-- Returns nothing. The session holds no other session-level advisory lock.
SELECT pg_advisory_unlock_all()
