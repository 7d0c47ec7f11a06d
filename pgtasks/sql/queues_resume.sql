-- Lets claims from a queue go on.
--
-- Parameter: queue. Returns one row: true when this call resumed it.
-- The public function does it, so that every way to resume is the same.
SELECT pgtasks.resume(%(queue)s) AS resumed
