-- Makes a waiting task due now, or replays a dead letter.
--
-- Parameter: id. Returns one row: what happened, NULL when there is no such task.
-- The public function does it, so that every way to retry is the same.
SELECT pgtasks.retry(%(id)s::bigint) AS happened
