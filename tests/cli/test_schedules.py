"""`pgtasks schedules`: made, shown, changed, paused, resumed and removed by name."""

from pathlib import Path
from typing import Any

import pytest

from pgtasks.cli import schedules_known
from pgtasks.cron import CronSchedule
from pgtasks.errors import ScheduleError
from tests.cli.conftest import Ran, Run
from tests.database import Connection, rows, value

pytestmark = pytest.mark.pg


def columns(connection: Connection, name: str, *wanted: str) -> tuple[Any, ...]:
    """Return some columns of a schedule."""
    (row,) = rows(connection, f"SELECT {', '.join(wanted)} FROM pgtasks.schedules WHERE name = %s", name)
    return row


def refused(ran: Ran, code: int, *parts: str) -> None:
    """Check that a command ended with a code and one error that holds all the parts."""
    assert ran.code == code, ran
    assert ran.out == ""
    assert ran.err.startswith("error: ")
    for part in parts:
        assert part in ran.err


def test_what_is_added_is_in_the_table(pgtasks: Run, connection: Connection) -> None:
    """Every option has its column."""
    options = ["--payload", '{"a": [1]}', "--timezone", "Europe/Paris", "--seconds", "--queue", "mails"]
    more = ["--priority", "7", "--missed", "all", "--missed-max", "9", "--overlap", "skip", "--jitter", "1m30s"]
    ran = pgtasks("schedules", "add", "nightly", "0 30 3 * * *", "report", *options, *more, "--disabled")
    assert ran.code == 0, ran
    assert "schedule nightly added; paused" in ran.out
    assert columns(
        connection, "nightly", "expression", "task", "payload", "timezone", "seconds", "queue", "priority", "missed",
        "missed_max", "overlap", "extract(epoch FROM jitter)::int", "enabled", "source", "deployment",
    ) == (
        "0 30 3 * * *", "report", {"a": [1]}, "Europe/Paris", True, "mails", 7, "all", 9, "skip", 90, False, "person",
        None,
    )  # fmt: skip


def test_what_is_not_given_has_its_default(pgtasks: Run, connection: Connection) -> None:
    """That of the table, which docs/cron.md names."""
    ran = pgtasks("schedules", "add", "hourly", "@hourly", "report", "--json")
    assert ran.json["state"] == "on"
    assert ran.json["payload"] == {}
    wanted = ("timezone", "seconds", "queue", "priority", "missed", "missed_max", "overlap", "jitter::text", "enabled")
    assert columns(connection, "hourly", *wanted) == (
        "UTC", False, None, None, "latest", 100, "allow", "00:00:00", True,
    )  # fmt: skip


def test_a_name_that_is_taken_is_1(pgtasks: Run, connection: Connection) -> None:
    """What is there stays as it is."""
    assert pgtasks("schedules", "add", "a", "@hourly", "one").code == 0
    refused(pgtasks("schedules", "add", "a", "@daily", "two"), 1, "'a' already", "pgtasks schedules edit")
    assert columns(connection, "a", "expression", "task") == ("@hourly", "one")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["x", "0 0 30 2 *", "t"], ["day-of-month", "never fires"]),
        (["x", "0 0 4 * * *", "t"], ["expression", "6 fields"]),
        (["x", "61 * * * *", "t"], ["minute"]),
        (["x", "@hourly", "t", "--timezone", "Europe/Pariss"], ["timezone", "Europe/Paris"]),
        (["x", "@hourly", "t", "--missed", "latst"], ["--missed", "did you mean 'latest'?"]),
        (["x", "@hourly", "t", "--missed-max", "0"], ["--missed-max", "1 and 1000"]),
        (["x", "@hourly", "t", "--overlap", "skipp"], ["--overlap", "did you mean 'skip'?"]),
        (["x", "@hourly", "t", "--jitter", "soon"], ["--jitter", "no duration"]),
        (["x", "@hourly", "t", "--jitter", "2d"], ["jitter", "at most 86400"]),
        (["x", "@hourly", "t", "--priority", "40000"], ["priority", "32767"]),
        (["x", "@hourly", "t", "--queue", ""], ["queue", "1 to 200"]),
        (["x", "@hourly", "t", "--payload", "[1]"], ["JSON object", "an array"]),
        (["x", "@hourly", "t", "--payload", '{"a": "\\u0000"}'], ["payload.a"]),
        (["", "@hourly", "t"], ["schedule name", "1 to 200"]),
        (["x\n", "@hourly", "t"], ["schedule name", "control"]),
        (["x", "@hourly", ""], ["task name", "1 to 200"]),
    ],
    ids=lambda found: " ".join(found) if isinstance(found, list) else "",
)
def test_bad_input_of_every_field_is_2(
    pgtasks: Run, connection: Connection, arguments: list[str], parts: list[str]
) -> None:
    """The message names the field; nothing is written."""
    refused(pgtasks("schedules", "add", *arguments), 2, *parts)
    assert value(connection, "SELECT count(*) FROM pgtasks.schedules") == 0


def test_a_task_name_that_no_worker_has_is_noted(pgtasks: Run, connection: Connection) -> None:
    """It is added all the same: its worker may come tomorrow."""
    connection.execute(
        "INSERT INTO pgtasks.task_types (name, queue, max_attempts, retry) VALUES ('report', 'q', 1, '{}')"
    )
    assert pgtasks("schedules", "add", "good", "@hourly", "report").err == ""
    ran = pgtasks("schedules", "add", "odd", "@hourly", "reprot")
    assert ran.code == 0
    assert "did you mean 'report'?" in ran.err


def test_an_edit_changes_what_is_given_and_nothing_else(pgtasks: Run, connection: Connection) -> None:
    """A payload that Python could not read goes through untouched."""
    rows(
        connection,
        "INSERT INTO pgtasks.schedules (name, expression, task, payload, queue, priority, jitter)"
        " VALUES ('a', '@hourly', 't', ('{\"n\": ' || repeat('9', 5000) || '}')::jsonb, 'q', 3, '5 s')",
    )
    assert pgtasks("schedules", "edit", "a", "--timezone", "Asia/Tokyo", "--unset", "queue").code == 0
    wanted = ("timezone", "queue", "priority", "jitter::text", "length(payload::text) > 5000")
    assert columns(connection, "a", *wanted) == ("Asia/Tokyo", None, 3, "00:00:05", True)
    assert pgtasks("schedules", "edit", "a", "--expression", "0 4 * * *", "--task", "u", "--disabled").code == 0
    assert columns(connection, "a", "expression", "task", "enabled", "timezone") == (
        "0 4 * * *",
        "u",
        False,
        "Asia/Tokyo",
    )
    assert pgtasks("schedules", "edit", "a", "--enabled", "--payload", "{}", "--jitter", "0").code == 0
    assert columns(connection, "a", "enabled", "payload", "jitter::text") == (True, {}, "00:00:00")


def test_only_an_edit_of_the_plan_plans_anew(pgtasks: Run, connection: Connection) -> None:
    """A new payload leaves the next fire where it is."""
    pgtasks("schedules", "add", "a", "@hourly", "t")
    planned = "UPDATE pgtasks.schedules SET next_fire = '2100-01-01T00:00Z' WHERE name = 'a'"
    rows(connection, planned)
    pgtasks("schedules", "edit", "a", "--payload", '{"b": 1}', "--missed", "skip")
    assert columns(connection, "a", "extract(year FROM next_fire)::int") == (2100,)
    pgtasks("schedules", "edit", "a", "--expression", "@daily")
    assert columns(connection, "a", "next_fire") == (None,)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ([], ["--expression"]),
        (["--expression", "0 0 30 2 *"], ["day-of-month"]),
        (["--seconds"], ["expression", "5 fields"]),
        (["--unset", "quue"], ["did you mean 'queue'?"]),
        (["--unset", "queue", "--queue", "x"], ["exclude each other"]),
    ],
)
def test_a_bad_edit_is_2(pgtasks: Run, connection: Connection, arguments: list[str], parts: list[str]) -> None:
    """The schedule stays as it is."""
    pgtasks("schedules", "add", "a", "0 4 * * *", "t", "--queue", "q")
    before = columns(connection, "a", "updated_at", "expression", "queue")
    refused(pgtasks("schedules", "edit", "a", *arguments), 2, *parts)
    assert columns(connection, "a", "updated_at", "expression", "queue") == before


def test_a_schedule_of_the_code_is_edited_with_force_only(pgtasks: Run, connection: Connection) -> None:
    """The message names the deployment, and what else there is to do."""
    rows(
        connection,
        "INSERT INTO pgtasks.schedules (name, expression, task, source, deployment)"
        " VALUES ('a', '@hourly', 't', 'code', 'shop:app')",
    )
    refused(pgtasks("schedules", "edit", "a", "--expression", "@daily"), 1, "shop:app", "pause", "--force")
    assert columns(connection, "a", "expression") == ("@hourly",)
    assert pgtasks("schedules", "edit", "a", "--expression", "@daily", "--force").code == 0
    assert columns(connection, "a", "expression", "source", "deployment") == ("@daily", "code", "shop:app")


def test_of_two_edits_at_once_one_is_told_to_look_again(
    pgtasks: Run, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would overwrite what the other one has just written."""
    pgtasks("schedules", "add", "a", "@hourly", "t")
    read = schedules_known.read

    def read_slowly(*arguments: Any) -> Any:
        found = read(*arguments)
        rows(connection, "UPDATE pgtasks.schedules SET task = 'theirs' WHERE name = 'a'")
        return found

    monkeypatch.setattr(schedules_known, "read", read_slowly)
    refused(pgtasks("schedules", "edit", "a", "--task", "mine"), 1, "somebody else", "try again")
    assert columns(connection, "a", "task") == ("theirs",)


def test_pause_and_resume(pgtasks: Run, connection: Connection) -> None:
    """Each says whether it changed anything; a name that is unknown is 3, and the others are done."""
    for name in ("a", "b"):
        pgtasks("schedules", "add", name, "@hourly", "t")
    ran = pgtasks("schedules", "pause", "a", "bb", "b")
    assert ran.code == 3
    assert ran.out == "schedule a is paused; tasks that it made go on\nschedule b is paused; tasks that it made go on\n"
    assert "there is no schedule 'bb'; did you mean 'b'?" in ran.err
    assert value(connection, "SELECT count(*) FROM pgtasks.schedules WHERE enabled") == 0
    assert [one["state"] for one in pgtasks("schedules", "list", "--json").json["schedules"]] == ["paused", "paused"]
    before = columns(connection, "a", "planned_from")
    assert pgtasks("schedules", "pause", "a", "--json").json == {
        "schedules": [{"name": "a", "enabled": False, "changed": False}],
        "not_found": [],
    }
    assert columns(connection, "a", "planned_from") == before
    assert pgtasks("schedules", "resume", "a").out == "schedule a goes on, from now on\n"
    assert pgtasks("schedules", "resume", "a").out == "schedule a was not paused\n"
    assert columns(connection, "a", "enabled", "planned_from > created_at + interval '1 ms'") == (True, True)


def test_remove(pgtasks: Run, connection: Connection) -> None:
    """A fire that is recorded stays; one of the code comes back, and that is said."""
    pgtasks("schedules", "add", "a", "@hourly", "t")
    rows(
        connection,
        "INSERT INTO pgtasks.schedules (name, expression, task, source, deployment)"
        " VALUES ('b', '@hourly', 't', 'code', 'shop:app')",
    )
    rows(connection, "INSERT INTO pgtasks.schedule_fires (schedule, fire_time, outcome) VALUES ('a', now(), 'missed')")
    assert pgtasks("schedules", "remove", "a").out == "schedule a is removed\n"
    assert "comes back when a worker of shop:app starts" in pgtasks("schedules", "remove", "b").out
    assert value(connection, "SELECT count(*) FROM pgtasks.schedules") == 0
    assert len(pgtasks("schedules", "history", "a", "--json").json["fires"]) == 1
    ran = pgtasks("schedules", "remove", "a", "--json")
    assert ran.code == 3
    assert ran.json == {"removed": [], "not_found": ["a"]}


@pytest.mark.parametrize("command", ["show", "edit --task x", "run", "next", "history", "backfill --from 1h"])
def test_an_unknown_name_is_3(pgtasks: Run, connection: Connection, command: str) -> None:
    """With what was probably meant."""
    assert not connection.closed
    pgtasks("schedules", "add", "nightly", "@hourly", "t")
    verb, *options = command.split()
    refused(pgtasks("schedules", verb, "nihgtly", *options), 3, "did you mean 'nightly'?", "pgtasks schedules list")


def test_the_list_and_the_details(pgtasks: Run, connection: Connection) -> None:
    """Next and last fire, lateness, missed and skipped of a day, the state; a bad row is flagged."""
    rows(
        connection,
        "INSERT INTO pgtasks.schedules (name, expression, timezone, task) VALUES"
        " ('late', '@hourly', 'UTC', 't'), ('nightly', '0 3 * * *', 'Europe/Paris', 't'), ('odd', 'x', 'UTC', 't')",
    )
    rows(
        connection,
        "UPDATE pgtasks.schedules SET problem = CASE name WHEN 'odd' THEN 'minute: x' END,"
        " next_fire = now() + CASE name WHEN 'late' THEN interval '-2 minutes' ELSE '1 hour' END,"
        " last_fire = date_trunc('minute', now()) - interval '2 hours'",
    )
    rows(
        connection,
        "INSERT INTO pgtasks.schedule_fires (schedule, fire_time, fired_at, outcome, task_id) VALUES"
        " ('nightly', date_trunc('minute', now()) - interval '2 hours',"
        " date_trunc('minute', now()) - interval '2 hours' + interval '3 s', 'fired', 1),"
        " ('nightly', now() - interval '3 hours', now(), 'missed', NULL),"
        " ('nightly', now() - interval '4 hours', now(), 'skipped_overlap', NULL),"
        " ('nightly', now() - interval '2 days', now(), 'missed', NULL)",
    )
    listed = pgtasks("schedules", "list", "--json").json["schedules"]
    assert [(one["name"], one["state"]) for one in listed] == [
        ("late", "overdue"),
        ("nightly", "on"),
        ("odd", "problem"),
    ]
    nightly = listed[1]
    assert (nightly["fired"], nightly["missed_fires"], nightly["skipped"], nightly["lateness_s"]) == (1, 1, 1, 3.0)
    text = pgtasks("schedules", "list").out
    assert "0 3 * * * Europe/Paris" in text
    assert "2m00s over" in text
    shown = pgtasks("schedules", "show", "nightly").out
    assert "At 03:00 every day (Europe/Paris)" in shown
    assert "1 fired, 1 missed, 1 skipped" in shown
    assert shown.count(":00:00Z") >= 5
    assert "minute: x" in pgtasks("schedules", "show", "odd").out
    assert pgtasks("schedules", "show", "odd", "--json").json["upcoming"] == []
    outcomes = [one["outcome"] for one in pgtasks("schedules", "history", "nightly", "--json").json["fires"]]
    assert outcomes == ["fired", "missed", "skipped_overlap", "missed"]
    assert len(pgtasks("schedules", "history", "nightly", "--limit", "2", "--json").json["fires"]) == 2


def test_an_empty_list_says_how_to_begin(pgtasks: Run, connection: Connection) -> None:
    """It is no error."""
    assert not connection.closed
    ran = pgtasks("schedules", "list")
    assert (ran.code, ran.out) == (0, "")
    assert "pgtasks schedules add" in ran.err
    assert pgtasks("schedules", "list", "--json").json == {"schedules": []}


def test_run_enqueues_the_task_outside_the_plan(pgtasks: Run, connection: Connection) -> None:
    """With its payload, queue and priority; no fire row, and the same next fire, even while it is paused."""
    pgtasks(
        "schedules",
        "add",
        "a",
        "@hourly",
        "t",
        "--payload",
        '{"x": 1}',
        "--queue",
        "q",
        "--priority",
        "4",
        "--disabled",
    )
    ran = pgtasks("schedules", "run", "a")
    assert ran.code == 0
    found = rows(connection, "SELECT id, name, payload, queue, priority, unique_key, headers FROM pgtasks.tasks")
    assert found == [(int(ran.out), "t", {"x": 1}, "q", 4, None, {"pgtasks.schedule": "a"})]
    assert value(connection, "SELECT count(*) FROM pgtasks.schedule_fires") == 0
    assert pgtasks("schedules", "run", "a", "--json").json["task_id"] > int(ran.out)


def test_a_handlers_queue_counts_where_the_schedule_names_none(pgtasks: Run, connection: Connection) -> None:
    """And its priority."""
    connection.execute(
        "INSERT INTO pgtasks.task_types (name, queue, priority, max_attempts, retry) VALUES ('t', 'hq', 5, 1, '{}')"
    )
    pgtasks("schedules", "add", "a", "@hourly", "t")
    pgtasks("schedules", "run", "a")
    assert rows(connection, "SELECT queue, priority FROM pgtasks.tasks") == [("hq", 5)]


def test_run_does_not_overlap_where_the_schedule_forbids_it(pgtasks: Run, connection: Connection) -> None:
    """The living task is named."""
    pgtasks("schedules", "add", "a", "@hourly", "t", "--overlap", "skip")
    first = pgtasks("schedules", "run", "a").out.strip()
    refused(pgtasks("schedules", "run", "a"), 1, f"task {first}", f"pgtasks tasks cancel {first}")
    assert value(connection, "SELECT count(*) FROM pgtasks.tasks") == 1


def test_prune_removes_what_the_code_no_longer_has(pgtasks: Run, connection: Connection) -> None:
    """And nothing of a person or another deployment; a dry run removes nothing."""
    rows(
        connection,
        "INSERT INTO pgtasks.schedules (name, expression, task, source, deployment) VALUES"
        " ('stale', '@hourly', 't', 'code', 'tests.apps.basic:app'),"
        " ('other', '@hourly', 't', 'code', 'shop:app'), ('mine', '@hourly', 't', 'person', NULL)",
    )
    dry = pgtasks("schedules", "prune", "tests.apps.basic:app", "--dry-run")
    assert (dry.code, dry.out) == (0, "schedule stale would be removed\n")
    assert value(connection, "SELECT count(*) FROM pgtasks.schedules") == 3
    assert pgtasks("schedules", "prune", "tests.apps.basic:app", "--json").json["removed"] == ["stale"]
    assert rows(connection, "SELECT name FROM pgtasks.schedules ORDER BY name") == [("mine",), ("other",)]
    refused(pgtasks("schedules", "prune"), 2, "MODULE:APP", "shop:app")
    refused(pgtasks("schedules", "prune", "shop:ap"), 3, "did you mean 'shop:app'?")
    refused(pgtasks("schedules", "prune", "shop:app"), 2, "no module 'shop'", "--gone")
    assert pgtasks("schedules", "prune", "shop:app", "--gone", "--json").json["removed"] == ["other"]
    assert rows(connection, "SELECT name FROM pgtasks.schedules") == [("mine",)]


def test_prune_asks_the_app_for_its_deployment(pgtasks: Run, connection: Connection) -> None:
    """One that names itself; what is of another project with the same module name stays."""
    rows(
        connection,
        "INSERT INTO pgtasks.schedules (name, expression, task, source, deployment) VALUES"
        " ('kept', '@hourly', 't', 'code', 'shop'), ('stale', '@hourly', 't', 'code', 'shop'),"
        " ('other', '@hourly', 't', 'code', 'tests.apps.labelled:app')",
    )
    ran = pgtasks("schedules", "prune", "tests.apps.labelled:app", "--json")
    assert ran.json == {"deployment": "shop", "dry_run": False, "removed": ["stale"]}
    assert "the code of shop" in pgtasks("schedules", "show", "kept").out
    refused(pgtasks("schedules", "prune", "shop"), 2, "'shop' is the name of a deployment", "MODULE:APP", "--gone")
    refused(pgtasks("schedules", "prune", "shp", "--gone"), 3, "did you mean 'shop'?")
    assert pgtasks("schedules", "prune", "shop", "--gone", "--json").json["removed"] == ["kept"]
    assert rows(connection, "SELECT name FROM pgtasks.schedules") == [("other",)]


def test_what_a_person_types_is_what_the_messages_say(pgtasks: Run, connection: Connection) -> None:
    """The option where it is typed, wherever the message comes from; Python code has its own word."""
    six = "0 0 4 * * *"
    said = [
        pgtasks("schedules", "add", "a", six, "t").err,
        pgtasks("schedules", "next", six).err,
        pgtasks("schedules", "next", six, "--json").err,
        pgtasks("schedules", "next", "0 4 * * *", "--seconds").err,
    ]
    with pytest.raises(ScheduleError, match="seconds=True") as refusal:
        CronSchedule(six)
    rows(connection, "INSERT INTO pgtasks.schedules (name, expression, task) VALUES ('odd', %s, 't')", six)
    rows(connection, "UPDATE pgtasks.schedules SET problem = %s", str(refusal.value))
    said += [
        pgtasks("schedules", "edit", "odd", "--task", "u").err,
        pgtasks("schedules", "next", "odd").err,
        pgtasks("schedules", "show", "odd").out,
        pgtasks("status").out,
    ]
    for text in said:
        assert "--seconds" in text
        assert "seconds=True" not in text
    refused(pgtasks("schedules", "add", "a", "@daily", "t", "--missed-max", "0"), 2, "--missed-max must be")


def test_what_an_apps_code_says_is_about_python(pgtasks: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An app that cannot be imported for its schedule is repaired in Python."""
    (tmp_path / "broken_shop.py").write_text("import pgtasks\npgtasks.CronSchedule('0 0 4 * * *')\n")
    monkeypatch.chdir(tmp_path)
    refused(pgtasks("schedules", "prune", "broken_shop:app"), 2, "seconds first needs seconds=True")
