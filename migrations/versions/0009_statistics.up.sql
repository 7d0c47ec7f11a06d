-- 0009_statistics: no statistics of the ids of tasks, which are unique and tell the planner nothing.
--
-- Locks: SHARE UPDATE EXCLUSIVE on tasks, for a moment; claims and inserts go on beside it.
--
-- Where a vacuum or an analyze finds no living task while an old snapshot keeps the dead ones, the
-- table has pages and, as they say, no row. The planner then takes an index the less the better
-- its order is known to be that of the table (for a part of the pages and not of the rows), and
-- finds a task that ends through tasks_claim_order and not through its key: past all that is
-- dead, for each task. With no known order the key is the cheapest way whatever the rest says.
ALTER TABLE pgtasks.tasks ALTER COLUMN id SET STATISTICS 0;
