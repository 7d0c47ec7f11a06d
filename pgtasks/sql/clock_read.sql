-- Reads the database's clock. Returns one row.
SELECT clock_timestamp() AS now
