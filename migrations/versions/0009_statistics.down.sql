-- Undoes 0009_statistics.
ALTER TABLE pgtasks.tasks ALTER COLUMN id SET STATISTICS -1;
