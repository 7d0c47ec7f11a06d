"""Tasks whose process was lost are shown as such."""

from tests.cli.conftest import Run
from tests.database import Connection, value


def test_a_suspect_is_shown_as_one(pgtasks: Run, connection: Connection) -> None:
    """In `tasks show` for people and programs, and counted by `status`, by queue and name."""
    add = "INSERT INTO pgtasks.tasks (queue, name, attempt, losses) VALUES ('mails', %s, 2, %s) RETURNING id"
    task_id = value(connection, add, "crash", 2)
    value(connection, add, "crash", 1)
    innocent = value(connection, add, "calm", 0)
    shown = pgtasks("tasks", "show", str(task_id)).out
    assert "lost 2 times in a row, so it runs alone" in " ".join(shown.split())
    assert pgtasks("tasks", "show", str(task_id), "--json").json["losses"] == 2
    assert "quarantine" not in pgtasks("tasks", "show", str(innocent)).out
    assert pgtasks("tasks", "show", str(innocent), "--json").json["losses"] == 0
    warnings = pgtasks("status", "--json").json["warnings"]
    (warning,) = [one for one in warnings if one["kind"] == "quarantine"]
    assert (warning["queue"], warning["task"], warning["tasks"], warning["losses"]) == ("mails", "crash", 2, 2)
    assert "2 tasks crash lost the process that ran them" in warning["message"]
