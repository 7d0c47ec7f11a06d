-- What docs/pictures/make.py draws: a small shop on an ordinary evening.
INSERT INTO pgtasks.workers (id, name, queues, names, slots, busy, stuck, lease_s, version, started_at) VALUES
('00000000-0000-0000-0000-000000000001', 'web-1:4127', '{default,mails}', '{charge,send_mail,resize_image}', 20, 4, 0, 30, '0.1.0', now()),
('00000000-0000-0000-0000-000000000002', 'web-2:981', '{default,mails}', '{charge,send_mail,resize_image}', 20, 2, 0, 30, '0.1.0', now()),
('00000000-0000-0000-0000-000000000003', 'batch-1:77', '{reports}', '{nightly_report}', 4, 2, 1, 30, '0.1.0', now());

INSERT INTO pgtasks.task_types (name, queue, max_attempts, retry)
VALUES
('charge', 'default', 3, '{}'),
('resize_image', 'default', 3, '{}'),
('send_mail', 'mails', 5, '{}'),
('nightly_report', 'reports', 1, '{}');

INSERT INTO pgtasks.tasks (queue, name, run_at, attempt)
SELECT 'mails', 'send_mail', now() - interval '2 s' + g * interval '10 ms', 0 FROM generate_series(1, 184) AS g
UNION ALL
SELECT 'mails', 'send_mail', now() + g * interval '20 s', 1 FROM generate_series(1, 7) AS g
UNION ALL
SELECT 'default', 'resize_image', now() - interval '1 s', 0 FROM generate_series(1, 12) AS g
UNION ALL
SELECT 'default', 'charge', now() + interval '1 hour', 0 FROM generate_series(1, 31) AS g
UNION ALL
SELECT 'reports', 'nightly_report', now() - interval '19 min', 0 FROM generate_series(1, 6) AS g;

-- What runs: one lease for each worker.
WITH started (worker, queue, name, age) AS (
    VALUES
    (3, 'reports', 'nightly_report', interval '41 min 7 s'),
    (3, 'reports', 'nightly_report', interval '6 min 12 s'),
    (1, 'default', 'resize_image', interval '9 s'),
    (1, 'default', 'resize_image', interval '4 s'),
    (2, 'default', 'charge', interval '2 s'),
    (1, 'mails', 'send_mail', interval '1 s'),
    (1, 'mails', 'send_mail', interval '1 s'),
    (2, 'mails', 'send_mail', interval '0.5 s')
),

tasks AS (
    INSERT INTO pgtasks.tasks (queue, name, state, attempt, lease_id, claimed_at)
    SELECT s.queue, s.name, 'running', 1, s.worker, now() - s.age FROM started AS s
    RETURNING id, lease_id
)

INSERT INTO pgtasks.leases (id, worker_id, expires_at, task_ids) OVERRIDING SYSTEM VALUE
SELECT
    t.lease_id, ('00000000-0000-0000-0000-00000000000' || t.lease_id)::uuid, now() + interval '1 min',
    array_agg(t.id ORDER BY t.id)
FROM tasks AS t
GROUP BY t.lease_id;

INSERT INTO pgtasks.history (
    id, created_at, run_at, attempt, priority, status, queue, name, payload, finished_at
)
SELECT g, now(), now(), 1, 0, 'completed', x.queue, x.name, '{}', now() - g * x.pace
FROM (
    VALUES
    ('mails', 'send_mail', 22000, interval '55 ms'),
    ('default', 'resize_image', 4100, interval '0.8 s'),
    ('reports', 'nightly_report', 9, interval '6 min')
) AS x (queue, name, many, pace)
CROSS JOIN LATERAL generate_series(1, x.many) AS g;

INSERT INTO pgtasks.attempts (
    task_id, attempt, lease_id, outcome, error_class, error, queue, name, finished_at
) VALUES
(184207, 1, 1, 'failed', 'SMTPServerDisconnected', 'Connection unexpectedly closed: timed out', 'mails', 'send_mail', now() - interval '3 s'),
(184199, 2, 1, 'failed', 'SMTPServerDisconnected', 'Connection unexpectedly closed: timed out', 'mails', 'send_mail', now() - interval '5 s'),
(184120, 1, 1, 'timed_out', 'TimeoutError', 'the handler did not end within 30 s', 'default', 'resize_image', now() - interval '21 s'),
(183977, 3, 1, 'failed', 'CardDeclined', 'insufficient funds', 'default', 'charge', now() - interval '48 s');

INSERT INTO pgtasks.dead_letters (
    id, created_at, run_at, attempt, priority, reason, queue, name, payload, error_class, error
)
SELECT g, now(), now(), 3, 0, 'exhausted', 'default', 'charge', '{}', 'CardDeclined', 'insufficient funds'
FROM generate_series(1, 3) AS g;

INSERT INTO pgtasks.schedules (name, expression, task, queue) VALUES
('nightly', '30 2 * * *', 'nightly_report', 'reports'), ('digest', '*/15 * * * *', 'send_mail', 'mails');

UPDATE pgtasks.schedules SET next_fire = now() + interval '7 min';

INSERT INTO pgtasks.schedule_fires (schedule, fire_time, fired_at, outcome, task_id)
SELECT 'digest', now() - g * interval '15 min', now() - g * interval '15 min' + interval '31 ms', 'fired', g
FROM generate_series(1, 95) AS g
