-- Undoes 0005_retention.
DROP FUNCTION pgtasks.prune(interval, integer);

ALTER TABLE pgtasks.queues DROP COLUMN keep_completed;
