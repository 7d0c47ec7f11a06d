-- Tells whether tasks of a queue that completed leave a row in history.
--
-- Parameter: queue. Returns one row: true or false; a queue without settings keeps them.
SELECT coalesce((SELECT q.keep_completed FROM pgtasks.queues AS q WHERE q.name = %(queue)s), true) AS kept
