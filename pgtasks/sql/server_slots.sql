-- Finds the replication slots that keep vacuum from removing dead rows.
--
-- Parameter: limit. Returns SlotRows: the slot, whether somebody reads it, and how many
-- transactions its horizon lies back; the oldest first. A slot whose reader is gone holds the
-- horizon, and the WAL, for ever.
SELECT
    s.slot_name::text AS name,
    s.slot_type AS kind,
    s.active,
    age(s.xmin) AS transactions_back,
    pg_size_pretty(pg_wal_lsn_diff(w.now_at, s.restart_lsn)) AS wal_held
FROM pg_replication_slots AS s
CROSS JOIN LATERAL (
    SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END AS now_at
) AS w
WHERE s.xmin IS NOT NULL OR NOT s.active
ORDER BY age(s.xmin) DESC NULLS LAST
LIMIT %(limit)s
