-- Waits for the turn to change rights on the schema, which ends with the transaction.
--
-- Returns one row. Two sessions that grant at once change the same rows of the catalog, and
-- PostgreSQL fails one of them with "tuple concurrently updated".
-- 7074618 is the namespace of maintenance locks within the 64-bit advisory keys.
SELECT pg_advisory_xact_lock(hashtextextended('grant', 7074618))
