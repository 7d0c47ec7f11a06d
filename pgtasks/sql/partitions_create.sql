-- Creates the day partitions of today and the coming days where they are missing.
--
-- Parameters: days_ahead. Returns one row: how many were made.
SELECT pgtasks.create_partitions(%(days_ahead)s) AS made
