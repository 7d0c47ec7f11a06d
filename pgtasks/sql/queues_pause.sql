-- Stops claims from a queue.
--
-- Parameter: queue. Returns one row: true when this call paused it.
-- The public function does it, so that every way to pause is the same.
SELECT pgtasks.pause(%(queue)s) AS paused
