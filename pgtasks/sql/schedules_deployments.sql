-- Names the deployments that have schedules from code.
--
-- Parameter: limit. Returns rows: deployment. A scan: it is a small table, and a person asks.
SELECT DISTINCT s.deployment
FROM pgtasks.schedules AS s
WHERE s.source = 'code' AND s.deployment IS NOT NULL
ORDER BY s.deployment
LIMIT %(limit)s
