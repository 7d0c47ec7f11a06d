-- Finds priorities of a queue that a cursor has no lane for, without a walk over its dead rows.
--
-- Parameters: queue; names; aboves and belows (the gaps between the lanes' priorities, as two
-- arrays of one length; exclusive, so that the scan of a gap never enters a lane).
-- Returns one row per priority in which a due task of these names waits, suspects aside: the priority, and
-- run_at and id right before its first such task: where its lane begins.
-- Index: tasks_claim_order, entered once per gap; of a gap at most 100 rows are looked at.
SELECT DISTINCT ON (pick.priority)
    pick.priority,
    pick.run_at,
    pick.id - 1 AS id
FROM unnest(%(aboves)s::integer[], %(belows)s::integer[]) AS gap (above, below)
CROSS JOIN LATERAL (
    SELECT t.priority, t.run_at, t.id, t.name, t.state, t.losses
    FROM pgtasks.tasks AS t
    WHERE t.queue = %(queue)s AND t.priority > gap.above AND t.priority < gap.below
    ORDER BY t.priority DESC, t.run_at, t.id
    LIMIT 100
) AS pick
WHERE pick.state = 'queued' AND pick.run_at <= statement_timestamp() AND pick.name = ANY(%(names)s::text[])
    AND pick.losses = 0
ORDER BY pick.priority, pick.run_at, pick.id
