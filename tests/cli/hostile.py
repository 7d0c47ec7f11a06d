"""Texts that try to act on a terminal, and rows that carry them."""

from psycopg.types.json import Jsonb

from tests.database import Connection

NAMES = [
    "[/foo]",
    "[bold]x[/bold]",
    "[link=file:///etc/passwd]click[/link]",
    "a\u202eb\u2066c",
    "宽字符" * 5,
    "zero\u200bwidth\ufeff",
    "c1\x9b31mred",
    "x" * 200,
    ":smile:",
    "%s {} $(id) `id` ; '",
]
# What the schema's CHECKs keep out of names may stand in errors and results.
ERRORS = ["\x1b[2J\x1b]0;title\x07", "line\nline\r\x08over\x0b", "\x1b]8;;file:///etc/passwd\x1b\\x", "e" * 5000]


def insert_everywhere(connection: Connection) -> None:
    """Put hostile texts into every column that a command shows."""
    for number, name in enumerate(NAMES):
        error = ERRORS[number % len(ERRORS)]
        connection.execute("INSERT INTO pgtasks.tasks (name, queue) VALUES (%s, %s)", (name, name))
        connection.execute(
            "INSERT INTO pgtasks.dead_letters (id, created_at, run_at, attempt, priority, reason, queue, name, payload,"
            " error_class, error, traceback, unique_key) VALUES (%s, now(), now(), 1, 0, 'exhausted', %s, %s, %s,"
            " %s, %s, %s, %s)",
            (number + 1, name, name, Jsonb({name: error}), name, error, error, name),
        )
        connection.execute(
            "INSERT INTO pgtasks.attempts (task_id, attempt, lease_id, outcome, error_class, error, traceback, queue,"
            " name) VALUES (%s, 1, 1, 'failed', %s, %s, %s, %s, %s)",
            (number + 1, name, error, error, name, name),
        )
        connection.execute(
            "INSERT INTO pgtasks.history (id, created_at, run_at, attempt, priority, status, queue, name, payload,"
            " result, error) VALUES (%s, now(), now(), 1, 0, 'completed', %s, %s, '{}', %s, %s)",
            (number + 1001, name, name, Jsonb(error), error),
        )
        connection.execute(
            "INSERT INTO pgtasks.workers (id, name, queues, names, slots, lease_s, version)"
            " VALUES (gen_random_uuid(), %s, %s, %s, 1, 30, %s)",
            (error, [name], [name], error[:20]),
        )
        connection.execute(
            "INSERT INTO pgtasks.schedules (name, expression, timezone, task, payload, queue, deployment)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s)",
            (name, error[:256], error[:100], name, Jsonb({name: error}), name, error),
        )
        connection.execute("UPDATE pgtasks.schedules SET problem = %s WHERE name = %s", (error, name))
        connection.execute(
            "INSERT INTO pgtasks.schedule_fires (schedule, fire_time, outcome) VALUES (%s, now(), 'missed')", (name,)
        )


COMMANDS = [
    ("status",),
    ("tasks", "list"),
    ("tasks", "show", "1"),
    ("tasks", "show", "2"),
    ("tasks", "show", "1003"),
    ("tasks", "explain", "1"),
    ("tasks", "explain", "1003"),
    ("queues", "list"),
    ("dead", "list"),
    ("dead", "show", "3"),
    ("dead", "replay", "--dry-run"),
    ("workers", "list"),
    ("tasks", "list", "--queue", "no\x1b[2Jsuch"),
    ("queues", "pause", "\u202eqq"),
    ("schedules", "list"),
    *(("schedules", "show", name) for name in NAMES),
    ("schedules", "history", NAMES[3]),
    ("schedules", "pause", NAMES[3], NAMES[5]),
    ("schedules", "resume", NAMES[3], "no\x1b[2Jsuch\u202e"),
    ("schedules", "remove", NAMES[5]),
    ("schedules", "next", "no\u202esuch"),
]
