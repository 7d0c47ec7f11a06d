-- Undoes 0009_statistics: 100 is what PostgreSQL comes with.
ALTER TABLE pgtasks.tasks ALTER COLUMN id SET STATISTICS 100;
