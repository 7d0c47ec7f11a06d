-- Removes all that 0001_initial.up.sql made, every task included.

DROP VIEW pgtasks.worker_stats;
DROP VIEW pgtasks.queue_stats;
DROP VIEW pgtasks.all_tasks;

DROP FUNCTION pgtasks.create_partitions(integer);
DROP FUNCTION pgtasks.backlog(text);
DROP FUNCTION pgtasks.resume(text);
DROP FUNCTION pgtasks.pause(text);
DROP FUNCTION pgtasks.retry(bigint);
DROP FUNCTION pgtasks.cancel(bigint);
DROP FUNCTION pgtasks.enqueue_many(jsonb, text);
DROP FUNCTION pgtasks.enqueue_item(jsonb, text);
DROP FUNCTION pgtasks.enqueue(
    text, jsonb, text, integer, timestamptz, interval, text, integer, interval, jsonb, text
);
DROP FUNCTION pgtasks.enqueue_task(
    text, jsonb, text, integer, timestamptz, interval, text, integer, interval, jsonb, text
);
DROP FUNCTION pgtasks.ring(text);

-- The day partitions go with their parents.
DROP TABLE pgtasks.task_types;
DROP TABLE pgtasks.queues;
DROP TABLE pgtasks.workers;
DROP TABLE pgtasks.dead_letters;
DROP TABLE pgtasks.attempts;
DROP TABLE pgtasks.history;
DROP TABLE pgtasks.leases;
DROP TABLE pgtasks.tasks;

DROP FUNCTION pgtasks.tasks_inserted();
