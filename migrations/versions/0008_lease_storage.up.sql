-- 0008_lease_storage: the ids of a lease's tasks are no longer compressed.
--
-- Locks: SHARE UPDATE EXCLUSIVE on leases, for a moment; claims and heartbeats go on beside it.
--
-- 8,160 bytes is the most that a row may have before it is compressed or moved out of line, and a
-- lease of 1,000 tasks has fewer. It was 2,032: every full claim compressed 4 kB of ids, which was
-- a tenth of its CPU, for a row that lives for milliseconds.
ALTER TABLE pgtasks.leases SET (toast_tuple_target = 8160);
