-- 0006_capacity: a worker says what limits it has beside its slots, so that `pgtasks tasks explain`
-- can tell which of them keeps a task waiting.
--
-- Locks: no column has a default, so no row is rewritten. A worker of the version before leaves
-- them NULL, which means that it has not said. They are written once, when a worker starts: the
-- heartbeat does not touch them.

-- The own limit of each queue in `queues`, in the same order; NULL where it has none.
ALTER TABLE pgtasks.workers ADD COLUMN queue_slots integer[];
-- In how many child processes isolated tasks and suspects run, one at a time in each.
ALTER TABLE pgtasks.workers ADD COLUMN children integer;
-- Which of `names` need one.
ALTER TABLE pgtasks.workers ADD COLUMN isolated text[];
