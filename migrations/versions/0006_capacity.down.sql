-- Undoes 0006_capacity.
ALTER TABLE pgtasks.workers DROP COLUMN isolated;
ALTER TABLE pgtasks.workers DROP COLUMN children;
ALTER TABLE pgtasks.workers DROP COLUMN queue_slots;
