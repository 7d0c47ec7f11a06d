-- Streams many tasks without unique_key into the queue; ten times cheaper than statements.
--
-- Columns: every row gives all of them; run_at is the database's clock plus the row's delay.
COPY pgtasks.tasks (name, payload, queue, priority, run_at, max_attempts, timeout, headers) FROM STDIN
