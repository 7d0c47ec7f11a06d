-- Cancels a task.
--
-- Parameter: id. Returns one row: what happened, NULL when there is no such task.
-- The public function does it, so that every way to cancel is the same.
SELECT pgtasks.cancel(%(id)s::bigint) AS happened
