"""Writing an app's schedules: its own are added and updated, nobody else's are touched."""

import asyncio
import threading
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from pgtasks import App
from pgtasks.engine.scheduler import write_schedules
from pgtasks.errors import ConfigError
from pgtasks.model import ScheduleDefinition
from pgtasks.schedules import definition
from pgtasks.store import scheduling, session
from pgtasks.store.link import Link
from pgtasks.store.scheduling import Synced
from tests.database import Connection, rows, value
from tests.schedules.helpers import add, connect, notices

A, B = definition("a", "@daily", "echo"), definition("b", "@hourly", "echo")
STATE = "SELECT name, xmin::text, expression, planned_from, next_fire FROM pgtasks.schedules ORDER BY name"


def sync(connection: Connection, *schedules: ScheduleDefinition, deployment: str = "shop:app") -> Synced:
    """Write schedules as a worker that starts does."""
    found = session.fetch_one(connection, scheduling.sync(deployment, schedules))
    assert found is not None
    return found


def test_adds_and_updates_its_own(connection: Connection) -> None:
    """What did not change is not written, so that no plan moves when a worker starts."""
    assert sync(connection, A, B) == Synced(["a", "b"], [], [])
    before = rows(connection, STATE)
    assert sync(connection, A, B) == Synced([], [], [])
    assert rows(connection, STATE) == before
    assert sync(connection, A, replace(B, expression="@weekly")) == Synced(["b"], [], [])
    after = rows(connection, STATE)
    assert after[0] == before[0]
    assert (after[1][2], after[1][3] > before[1][3]) == ("@weekly", True)
    assert rows(connection, "SELECT DISTINCT source, deployment FROM pgtasks.schedules") == [("code", "shop:app")]


@pytest.mark.parametrize(
    "change",
    [
        {"timezone": "Asia/Tokyo"},
        {"task": "add"},
        {"payload": {"a": [1, None]}},
        {"queue": "mails"},
        {"priority": 3},
        {"seconds": True, "expression": "0 * * * * *"},
        {"missed": "all"},
        {"missed_max": 5},
        {"overlap": "skip"},
        {"jitter_s": 1.5},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_column_is_written_and_compared(connection: Connection, change: dict[str, Any]) -> None:
    """Changed once it is written once, and going back is a change as well."""
    for _ in range(2):
        assert sync(connection, replace(A, **change)).written == ["a"]
        assert sync(connection, replace(A, **change)).written == []
        assert sync(connection, A).written == ["a"]


def test_a_start_that_changes_nothing_wakes_nobody(dsn: str, connection: Connection) -> None:
    """An app without schedules, and one whose schedules are as they should be."""
    sync(connection, A)
    with psycopg.connect(dsn, autocommit=True) as listening:
        listening.execute("LISTEN pgtasks_schedules")
        sync(connection)
        sync(connection, A)
        sync(connection, A, deployment="other:app")
        assert notices(listening, connection) == 0
        sync(connection, A, B)
        assert notices(listening, connection) == 1


def test_a_change_of_the_payload_does_not_move_the_plan(connection: Connection) -> None:
    """K-11."""
    sync(connection, A)
    rows(connection, "UPDATE pgtasks.schedules SET next_fire = '2040-01-01'")
    sync(connection, replace(A, payload={"x": 1}))
    assert value(connection, "SELECT next_fire = '2040-01-01' FROM pgtasks.schedules")


def test_paused_stays_paused(connection: Connection) -> None:
    """Who paused a schedule of the code wants it paused, whatever is deployed."""
    sync(connection, A)
    rows(connection, "UPDATE pgtasks.schedules SET enabled = false")
    sync(connection, replace(A, expression="@weekly"))
    assert rows(connection, "SELECT enabled, expression FROM pgtasks.schedules") == [(False, "@weekly")]


def test_others_are_left_alone(connection: Connection) -> None:
    """A person's, another deployment's: reported, not touched. What the code no longer has: reported, and goes on."""
    add(connection, "a", "@yearly")
    sync(connection, B, deployment="other:app")
    sync(connection, definition("old", "@daily", "echo"), definition("c", "@daily", "echo"))
    before = rows(connection, STATE)
    found = sync(connection, A, B, definition("c", "@daily", "echo"))
    assert found == Synced([], ["a", "b"], ["old"])
    assert rows(connection, STATE) == before
    assert sync(connection) == Synced([], [], ["c", "old"])
    assert rows(connection, STATE) == before


def test_an_open_edit_does_not_keep_workers_from_starting(dsn: str, connection: Connection) -> None:
    """What is as it should be is not even locked."""
    sync(connection, A, B)
    with psycopg.connect(dsn) as editing, connect(dsn) as starting:
        editing.execute("SELECT 1 FROM pgtasks.schedules FOR UPDATE")
        assert sync(starting, B, A) == Synced([], [], [])


@pytest.mark.parametrize("deployments", [["shop:app"], ["shop:app", "other:app"]])
def test_many_start_at_once(dsn: str, connection: Connection, deployments: list[str]) -> None:
    """In any order of definition, with changes, nobody fails: no deadlock, no duplicate; one deployment has it all."""
    names = [f"s{number}" for number in range(30)]
    found: list[Synced] = []
    errors: list[Exception] = []
    barrier = threading.Barrier(8)

    def start(index: int) -> None:
        ordered = names if index % 2 else names[::-1]
        try:
            with connect(dsn) as mine:
                for expression in ("@daily", "@hourly", "@weekly"):
                    barrier.wait(10.0)
                    given = [definition(name, expression, "echo") for name in ordered]
                    found.append(sync(mine, *given, deployment=deployments[index % len(deployments)]))
        except Exception as error:  # noqa: BLE001 - shown below
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=start, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    state = "SELECT DISTINCT expression, source FROM pgtasks.schedules"
    assert rows(connection, state) == [("@weekly", "code")]
    assert value(connection, "SELECT count(*) FROM pgtasks.schedules") == len(names)
    written = sum(len(one.written) for one in found)
    assert written >= 3 * len(names)
    assert sum(
        len(sync(connection, *(definition(n, "@weekly", "echo") for n in names), deployment=d).foreign_names)
        for d in deployments
    ) == len(names) * (len(deployments) - 1)


def test_what_a_worker_says(dsn: str, connection: Connection, caplog: pytest.LogCaptureFixture) -> None:
    """Names, and what to do about them."""
    add(connection, "taken")
    sync(connection, definition("old", "@daily", "echo"))
    app = App()

    @app.cron("@daily", name="taken")
    @app.cron("@daily", name="mine", jitter="30s", overlap="skip", missed="all", missed_max=7)
    @app.task(name="echo")
    def echo() -> None: ...

    async def write() -> None:
        link = Link(dsn, "finish")
        await write_schedules(link, app, "shop:app")
        await link.close()

    caplog.set_level("INFO")
    asyncio.run(write())
    said = {record.message: getattr(record, "pgtasks", {}).get("schedules") for record in caplog.records}
    assert said == {
        "schedules written": ["mine"],
        "schedules not written": ["taken"],
        "schedules are no longer in the code": ["old"],
    }
    kept = "SELECT jitter = '30 s', overlap, missed, missed_max FROM pgtasks.schedules WHERE name = 'mine'"
    assert rows(connection, kept) == [(True, "skip", "all", 7)]


@pytest.mark.parametrize(("named", "owner"), [("shop", "shop"), (None, "app:app")])
def test_an_app_may_name_its_deployment(dsn: str, connection: Connection, named: str | None, owner: str) -> None:
    """Then two projects whose apps are both called `app:app` leave each other's schedules alone."""
    sync(connection, definition("another's", "@daily", "echo"), deployment="mail")
    sync(connection, definition("same", "@daily", "echo"), deployment="app:app" if named else "mail")
    app = App(deployment=named)
    app.cron("@hourly", name="same")(app.task(name="echo")(lambda: None))
    app.cron("@hourly", name="mine")(app.task(name="other")(lambda: None))

    async def write() -> None:
        link = Link(dsn, "finish")
        await write_schedules(link, app, "app:app")
        await link.close()

    asyncio.run(write())
    found = "SELECT deployment, expression FROM pgtasks.schedules WHERE name = %s"
    assert rows(connection, found, "mine") == [(owner, "@hourly")]
    assert rows(connection, found, "same") == [("app:app" if named else "mail", "@daily")]


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", 7])
def test_a_bad_name_of_a_deployment_is_refused(name: Any) -> None:
    """When the app is made."""
    with pytest.raises(ConfigError, match="deployment must"):
        App(deployment=name)
