-- Says whether tasks of a queue that completed leave a row in history.
--
-- Parameters: queue; keep. Returns one row: true when this call changed the queue's settings.
WITH changed AS (
    INSERT INTO pgtasks.queues AS q (name, keep_completed)
    VALUES (%(queue)s, %(keep)s)
    ON CONFLICT (name) DO UPDATE SET keep_completed = excluded.keep_completed
    WHERE q.keep_completed <> excluded.keep_completed
    RETURNING q.name
)

SELECT EXISTS(SELECT FROM changed) AS changed
