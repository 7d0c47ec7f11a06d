-- Lists dead letters, the latest first.
--
-- Parameters: the filters queue, name, reason, since, before_time and ids (NULL for any), limit.
-- Returns DeadLetterRow, and nothing of a payload.
-- Index: dead_letters_finished_at walked backwards, or dead_letters_queue where a queue is given.
SELECT
    d.id,
    d.queue,
    d.name,
    d.reason,
    d.attempt,
    d.max_attempts,
    d.created_at,
    d.finished_at,
    d.error_class,
    left(d.error, 1000) AS error,
    d.worker_id
FROM pgtasks.dead_letters AS d
WHERE (%(queue)s::text IS NULL OR d.queue = %(queue)s)
    AND (%(name)s::text IS NULL OR d.name = %(name)s)
    AND (%(reason)s::text IS NULL OR d.reason = %(reason)s)
    AND (%(since)s::timestamptz IS NULL OR d.finished_at >= %(since)s)
    AND (%(before_time)s::timestamptz IS NULL OR d.finished_at < %(before_time)s)
    AND (%(ids)s::bigint[] IS NULL OR d.id = ANY(%(ids)s::bigint[]))
ORDER BY d.finished_at DESC, d.id DESC
LIMIT %(limit)s
