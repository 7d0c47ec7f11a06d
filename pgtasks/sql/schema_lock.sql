-- Tries to become the only migrator of this database; the lock lasts as long as the transaction.
--
-- Returns one row: taken, and if not, the holder's process id where it can be seen. A lock of
-- the transaction and not of the session, so that it is right behind a transaction pooler too.
-- The transaction stays open and idle while migrations run on another connection, which no
-- timeout may end; it holds no snapshot meanwhile, so it keeps nothing from being vacuumed.
-- 7074618 is the namespace of maintenance locks within the 64-bit advisory keys.
WITH attempt AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock(k.key) AS taken, k.key
    FROM (SELECT hashtextextended('migrate', 7074618) AS key) AS k
),

patience AS MATERIALIZED (
    SELECT count(set_config(s.name, '0', true)) AS timeouts
    FROM pg_settings AS s
    WHERE s.name IN ('idle_in_transaction_session_timeout', 'transaction_timeout')
)

SELECT
    a.taken,
    CASE WHEN NOT a.taken THEN (
        SELECT min(l.pid)
        FROM pg_locks AS l
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
            AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
            AND (l.classid::bigint << 32) | l.objid::bigint = a.key
    ) END AS holder
FROM attempt AS a
WHERE (SELECT p.timeouts FROM patience AS p) > 0
