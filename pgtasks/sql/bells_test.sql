-- Sends one notification to one session, which wants to know whether it hears.
--
-- Parameters: channel (that session's own). Returns one row, empty.
SELECT pg_notify(%(channel)s::text, '')
