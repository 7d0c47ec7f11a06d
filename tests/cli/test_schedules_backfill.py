"""`pgtasks schedules backfill`: past slots are fired once each, and never what has fired."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pgtasks.cli import schedules_backfill
from tests.cli.conftest import Ran, Run
from tests.database import Connection, rows, value, wait_until
from tests.workers import environment, program, start

pytestmark = pytest.mark.pg

MIDNIGHT = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
START = MIDNIGHT - timedelta(days=2)
END = MIDNIGHT - timedelta(days=1)


@pytest.fixture
def hourly(pgtasks: Run) -> Run:
    """Make a schedule of every hour, and give a backfill of yesterday's yesterday."""
    pgtasks("schedules", "add", "hourly", "@hourly", "t", "--payload", '{"x": 1}', "--queue", "q")

    def run(*options: str, stdin: str | None = None) -> Ran:
        assert stdin is None
        span = ("--from", START.isoformat(), "--to", END.isoformat())
        return pgtasks("schedules", "backfill", "hourly", *span, *options)

    return run


def fires(connection: Connection) -> list[tuple[object, ...]]:
    """Return every fire with the fire time that its task was told."""
    return rows(
        connection,
        "SELECT f.fire_time, f.outcome, (t.headers ->> 'pgtasks.fire_time')::timestamptz, "
        "t.headers ->> 'pgtasks.schedule'"
        " FROM pgtasks.schedule_fires f LEFT JOIN pgtasks.tasks t ON t.id = f.task_id ORDER BY 1",
    )


def test_every_slot_of_the_span_fires_once(hourly: Run, connection: Connection) -> None:
    """From the first instant on, before the last; each task knows its slot. Again, nothing happens."""
    assert hourly().out == "24 fired, 0 already there\n"
    slots = [START + timedelta(hours=hour) for hour in range(24)]
    assert fires(connection) == [(slot, "fired", slot, "hourly") for slot in slots]
    assert rows(connection, "SELECT DISTINCT name, payload, queue FROM pgtasks.tasks") == [("t", {"x": 1}, "q")]
    assert hourly("--json").json == {
        "name": "hourly", "dry_run": False, "fired": 0, "already_there": 24, "limited": False,
    }  # fmt: skip
    assert value(connection, "SELECT count(*) FROM pgtasks.tasks") == 24


def test_a_dry_run_lists_and_does_nothing(hourly: Run, connection: Connection) -> None:
    """What it lists is what a run would fire."""
    rows(
        connection,
        "INSERT INTO pgtasks.schedule_fires (schedule, fire_time, outcome, task_id) VALUES ('hourly', %s, 'fired', 1)",
        START,
    )
    text = hourly("--dry-run").out
    assert text.startswith("23 would be fired, 1 already there\n")
    assert f"{START + timedelta(hours=1):%Y-%m-%d %H:%M:%SZ}" in text
    assert f"{START:%Y-%m-%d %H:%M:%SZ}" not in text
    assert len(hourly("--dry-run", "--json").json["slots"]) == 23
    assert value(connection, "SELECT count(*) FROM pgtasks.tasks") == 0
    assert len(fires(connection)) == 1


def test_missed_slots_are_fired_when_asked_for(hourly: Run, connection: Connection) -> None:
    """They have a row, which says missed, and then fired; a skipped one stays skipped."""
    rows(
        connection,
        "INSERT INTO pgtasks.schedule_fires (schedule, fire_time, outcome) VALUES"
        " ('hourly', %s, 'missed'), ('hourly', %s, 'skipped_overlap')",
        START,
        START + timedelta(hours=1),
    )
    assert hourly().out == "22 fired, 2 already there\n"
    assert hourly("--also-missed").out == "1 fired, 23 already there\n"
    assert [outcome for _, outcome, *_ in fires(connection)] == ["fired", "skipped_overlap", *["fired"] * 22]
    assert hourly("--also-missed").out == "0 fired, 24 already there\n"


def test_a_backfill_is_not_late(hourly: Run, pgtasks: Run, connection: Connection) -> None:
    """It is as old as it was wanted; what a scheduler fires late is late, in the history, the list and in status."""
    rows(
        connection,
        "INSERT INTO pgtasks.schedule_fires (schedule, fire_time, fired_at, outcome, task_id)"
        " SELECT 'hourly', f, f + interval '5 min', 'fired', 1 FROM (SELECT %s::timestamptz) AS slot (f)"
        " UNION ALL SELECT 'hourly', %s, now(), 'missed', NULL",
        START,
        START + timedelta(hours=1),
    )
    rows(connection, "UPDATE pgtasks.schedules SET last_fire = %s", START)
    assert hourly("--also-missed").out == "23 fired, 1 already there\n"
    history = pgtasks("schedules", "history", "hourly", "--json").json["fires"]
    assert [(one["backfilled"], one["lateness_s"]) for one in history] == [(True, None)] * 23 + [(False, 300.0)]
    assert pgtasks("schedules", "history", "hourly").out.count("backfilled  ") == 23
    assert pgtasks("schedules", "show", "hourly", "--json").json["lateness_s"] == 300.0
    assert pgtasks("schedules", "list", "--json").json["schedules"][0]["lateness_s"] == 300.0
    assert pgtasks("schedules", "backfill", "hourly", "--from", "5h").out == "5 fired, 0 already there\n"
    shown = pgtasks("status", "--json").json["schedules"]["last_day"]
    assert shown["fired"] >= 5
    assert shown["late_s"] is None


def test_a_limit_counts_fires_and_the_next_run_goes_on(
    hourly: Run, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the size of a batch is."""
    monkeypatch.setattr(schedules_backfill, "BATCH_SLOTS", 7)
    first = hourly("--limit", "10")
    assert first.out.startswith("10 fired, 0 already there\nmore are left")
    assert [slot for slot, *_ in fires(connection)] == [START + timedelta(hours=hour) for hour in range(10)]
    assert hourly("--limit", "10", "--json").json["limited"] is True
    assert hourly("--limit", "10").out == "4 fired, 20 already there\n"


@pytest.mark.parametrize(("outcome", "task_id"), [("fired", 1), ("missed", None), ("skipped_overlap", None)])
def test_whoever_records_a_slot_first_has_it(
    hourly: Run, connection: Connection, monkeypatch: pytest.MonkeyPatch, outcome: str, task_id: int | None
) -> None:
    """What a scheduler does between the look and the statement stays as it is."""
    free = schedules_backfill._free  # noqa: SLF001 - the moment between two statements

    def look_then_lose(*arguments: object) -> object:
        found = free(*arguments)  # type: ignore[arg-type]  # passed on as they come
        rows(
            connection,
            "INSERT INTO pgtasks.schedule_fires (schedule, fire_time, outcome, task_id)"
            " VALUES ('hourly', %s, %s, %s) ON CONFLICT DO NOTHING",
            START,
            outcome,
            task_id,
        )
        return found

    monkeypatch.setattr(schedules_backfill, "_free", look_then_lose)
    assert hourly().out == "23 fired, 1 already there\n"
    assert fires(connection)[0][:2] == (START, outcome)
    assert value(connection, "SELECT count(*) FROM pgtasks.tasks") == 23


@pytest.mark.parametrize(("offset_ms", "first", "count"), [(-1, 0, 24), (0, 0, 24), (1, 1, 23), (500, 1, 23)])
def test_a_span_begins_to_the_moment(
    pgtasks: Run, connection: Connection, offset_ms: int, first: int, count: int
) -> None:
    """A slot just before it is left out."""
    pgtasks("schedules", "add", "hourly", "@hourly", "t")
    start = START + timedelta(milliseconds=offset_ms)
    ran = pgtasks("schedules", "backfill", "hourly", "--from", start.isoformat(), "--to", END.isoformat(), "--json")
    assert ran.json["fired"] == count
    assert fires(connection)[0][0] == START + timedelta(hours=first)


def test_an_edit_meanwhile_ends_it(hourly: Run, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slots were those of another plan."""
    free = schedules_backfill._free  # noqa: SLF001 - the moment between two statements

    def look_then_edit(*arguments: object) -> object:
        rows(connection, "UPDATE pgtasks.schedules SET expression = '@daily'")
        return free(*arguments)  # type: ignore[arg-type]  # passed on as they come

    monkeypatch.setattr(schedules_backfill, "_free", look_then_edit)
    ran = hourly()
    assert ran.code == 1
    assert "changed or removed meanwhile" in ran.err
    assert value(connection, "SELECT count(*) FROM pgtasks.tasks") == 0


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--from", "1h", "--to", "2100-01-01T00:00Z"], "future"),
        (["--from", "1h", "--to", "2h"], "before --to"),
        (["--from", "40d"], "--force"),
        (["--from", "yesterday"], "--from"),
        (["--from", "1h", "--limit", "0"], "--limit"),
        ([], "--from"),
    ],
)
@pytest.mark.usefixtures("hourly")
def test_a_bad_span_is_2(pgtasks: Run, options: list[str], part: str) -> None:
    """Nobody knows any more what fired forty days ago."""
    ran = pgtasks("schedules", "backfill", "hourly", *options)
    assert (ran.code, ran.out) == (2, ""), ran
    assert part in ran.err


@pytest.mark.usefixtures("hourly")
def test_an_old_span_is_fired_with_force(pgtasks: Run) -> None:
    """Then the person knows."""
    ran = pgtasks("schedules", "backfill", "hourly", "--from", "40d", "--to", "39d", "--force", "--json")
    assert ran.json["fired"] == 24


def test_tasks_that_must_not_overlap_are_not_backfilled_unasked(
    hourly: Run, pgtasks: Run, connection: Connection
) -> None:
    """They would run side by side."""
    pgtasks("schedules", "edit", "hourly", "--overlap", "skip")
    ran = hourly()
    assert ran.code == 1
    assert "--allow-overlap" in ran.err
    assert value(connection, "SELECT count(*) FROM pgtasks.schedule_fires") == 0
    assert hourly("--allow-overlap").out == "24 fired, 0 already there\n"


@pytest.mark.timeout(90)
def test_beside_another_backfill_and_a_scheduler_each_slot_fires_once(
    pgtasks: Run, dsn: str, connection: Connection, tmp_path: Path
) -> None:
    """The slots meet at the end of the span, where the scheduler fires, and everywhere else."""
    pgtasks("schedules", "add", "often", "@every 1s", "t", "--missed", "all")
    logs = [tmp_path / f"log{number}" for number in range(3)]
    with logs[0].open("wb") as output:
        scheduler = start([program(), "scheduler"], environment(dsn, "worker"), output.fileno())
    backfill = [program(), "schedules", "backfill", "often", "--from", "30m", "--limit", "5000"]
    processes = [scheduler]
    try:
        wait_until(lambda: value(connection, "SELECT count(*) FROM pgtasks.schedule_fires") > 0, 15)
        for log in logs[1:]:
            with log.open("wb") as output:
                processes.append(start(backfill, environment(dsn, "admin"), output.fileno()))
        assert [process.wait(30) for process in processes[1:]] == [0, 0], [log.read_text() for log in logs]
        wait_until(
            lambda: value(connection, "SELECT max(fire_time) > now() - interval '1 s' FROM pgtasks.schedule_fires")
        )
    finally:
        for process in processes:
            process.terminate()
            process.wait(15)
    fired = sum(int(log.read_text().split()[0].replace(",", "")) for log in logs[1:])
    found = rows(connection, "SELECT fire_time, task_id FROM pgtasks.schedule_fires WHERE outcome = 'fired' ORDER BY 1")
    assert 1790 <= fired <= len(found)
    assert (found[-1][0] - found[0][0]).total_seconds() == len(found) - 1
    assert sorted(task for _, task in found) == [
        id for (id,) in rows(connection, "SELECT id FROM pgtasks.tasks ORDER BY 1")
    ]
