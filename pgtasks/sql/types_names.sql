-- Names every task that a worker has ever registered, and its queue.
--
-- Reads a small table: one row per handler. Task names in the queue itself are not looked at.
SELECT
    tt.name,
    tt.queue
FROM pgtasks.task_types AS tt
ORDER BY tt.name
