"""`./dev bench latency` measures an idle worker beside its floor, and a busy one without omitting its stalls."""

import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from bench import arrivals, database, doorbell
from bench.database import Bench
from bench.rivals import RIVALS, run
from bench.rivals.beside import Field
from bench.rivals.rival import Rival
from bench.scenario import Outcome, Plan
from bench.scenarios import latency
from bench.stamps import Stamps, writer
from pgtasks.errors import DatabaseError
from pgtasks.store import session
from tests.database import Connection, Server, rows, wait_until


@pytest.mark.pg
@pytest.mark.slow
@pytest.mark.timeout(60)
def test_each_figure_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """In little time, at one share of a capacity that is far too large: that it did not keep up is said, too."""

    def too_much(*args: Any, **options: Any) -> tuple[int, float]:
        sent, _ = real(*args, **options)
        return sent, 400_000

    real = arrivals.closed_loop
    monkeypatch.setattr(arrivals, "closed_loop", too_much)
    monkeypatch.setattr(latency, "SHARES", (50,))
    monkeypatch.setattr(latency, "GAP_S", (0.01, 0.02))
    monkeypatch.setattr(latency, "WARM_UP", 3)
    outcome = Outcome()
    with database.started() as bench:
        latency.measure(bench, Plan(tasks=4, rounds=1, seconds=0.3), outcome)
    (figures,) = outcome.rounds
    wanted = {key.name for key in latency.keys(()) if not key.name.endswith(("_20", "_80"))}
    assert {name for name, value in figures.items() if value is not None} == wanted
    assert not outcome.missing
    assert figures["kept_up_at_50"] is not None
    assert 0 <= figures["kept_up_at_50"] < 0.9


def test_what_had_started_in_time_is_counted_at_the_moment_of_the_last_one() -> None:
    """However much later anybody looks."""
    intended = {7: 1.0, 8: 2.0, 9: 3.0, 10: 4.0}
    assert latency.kept_up(intended, {6: 0.5, 7: 1.1, 8: 4.0, 9: 4.1, 10: 4.1}) == 0.5


def test_a_rival_shows_its_own_latency(server: Server, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that cannot, or that measured less than it was asked to, is named as missing and has no figures."""
    able, unable, short = list(RIVALS)[:3]

    def latencies_s(rival: Rival, _bench: Any, tasks: int, _every_s: float) -> list[float]:
        if rival.name == unable:
            raise NotImplementedError
        return [0.002] * (tasks - 1) + [0.004] * (rival.name == able)

    for name in (able, unable, short):
        monkeypatch.setattr(type(RIVALS[name]), "install", lambda _self: None)
    monkeypatch.setattr(run, "latencies_s", latencies_s)
    bench, missing = Bench(server.private, connection), list[str]()
    figures = Field(bench, [able, unable, short], missing).each(lambda rival: latency.of_rival(bench, rival, 4))
    assert figures == {f"rival.{able}.p50_ms": 2.0, f"rival.{able}.p99_ms": 4.0}
    assert missing == [f"{unable}: its latency is not measured", f"{short}: 3 of 4 tasks were measured"]


def test_a_schedule_begins_when_all_is_prepared(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first task is due after the last moment was drawn, and after the last producer was connected."""
    prepared: list[float] = []
    real = psycopg.connect

    class Slow(random.Random):
        def expovariate(self, lambd: float = 1.0) -> float:
            time.sleep(0.005)  # stands for many tasks
            prepared.append(time.time())
            return super().expovariate(lambd)

    def connect(*args: Any, **options: Any) -> Connection:
        time.sleep(0.05)  # stands for a busy server
        connection: Connection = real(*args, **options)
        prepared.append(time.time())
        return connection

    monkeypatch.setattr(psycopg, "connect", connect)
    found = arrivals.open_loop(dsn, 100.0, 0.3, first=0, rng=Slow(1))
    assert len(prepared) == len(found.intended) + 1 + arrivals.PRODUCERS
    assert min(found.intended.values()) > max(prepared)


def test_a_stall_of_the_database_counts_for_each_task_that_was_due_meanwhile(
    dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks are due on the schedule, whatever becomes of those before them."""
    real, stalls = arrivals.send, iter([0.2])

    def send(connection: Connection, numbers: Sequence[int]) -> arrivals.Sent:
        time.sleep(next(stalls, 0.0))  # stands for a database that does not answer
        return real(connection, numbers)

    monkeypatch.setattr(arrivals, "PRODUCERS", 1)
    monkeypatch.setattr(arrivals, "send", send)
    found = arrivals.open_loop(dsn, 200.0, 0.3, first=7, rng=random.Random(1))
    assert list(found.intended) == list(range(7, 7 + len(found.intended)))
    assert found.committed.keys() == found.intended.keys()
    late = [number for number, due in found.intended.items() if found.committed[number] - due > 0.05]
    assert len(late) > 20, "a stall of 0.2 s at 200 tasks a second delays some 40 of them"
    assert connection.execute("SELECT count(*) FROM pgtasks.tasks").fetchone() == (len(found.intended),)


def test_many_programs_commit_what_they_inserted_before_others_did(dsn: str, connection: Connection) -> None:
    """Each task is there once, with the moment of its COMMIT; many are committed after one that was inserted later."""
    committed = arrivals.in_open_transactions(dsn, 0.3, first=7, rng=random.Random(1))
    assert sorted(committed) == list(range(7, 7 + len(committed)))
    rows = connection.execute(
        "SELECT (payload->>'number')::bigint, extract(EPOCH FROM created_at)::double precision FROM pgtasks.tasks"
        " ORDER BY created_at"
    ).fetchall()
    assert len(rows) == len(committed)
    assert all(committed[number] >= created_s for number, created_s in rows)
    moments = [committed[number] for number, _ in rows]
    late = [at for place, at in enumerate(moments) if at > min(moments[place:])]
    assert len(late) > len(moments) / 4


def test_the_floor_hears_what_comes_with_a_reply(
    dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task committed after a claim looked, whose notification comes before the claim's reply, is taken.

    It gets the bell although somebody inserts something as it begins, which keeps the bell from being taken.
    """
    real, empty = session.fetch_all, threading.Event()

    def fetch_all(connection: session.SyncConnection, statement: session.Statement[Any]) -> list[Any]:
        found = real(connection, statement)
        if not found and stamps.count() == 1 and not empty.is_set():
            empty.set()
            arrivals.send(producer, [2])
            connection.execute("SELECT")  # stands for the last part of the claim's reply
        return found

    monkeypatch.setattr(session, "fetch_all", fetch_all)
    with (
        Stamps() as stamps,
        ThreadPoolExecutor(1) as pool,
        psycopg.connect(dsn) as producer,
        psycopg.connect(dsn) as slow,
    ):
        slow.execute("INSERT INTO pgtasks.tasks (name, payload) VALUES ('stamp', '{\"number\": 1}')")
        floor = pool.submit(doorbell.main, dsn, str(stamps.path))
        asked = "SELECT 1 FROM pg_stat_activity WHERE application_name ~ 'floor' AND query ~ 'bell'"
        try:
            wait_until(lambda: rows(connection, asked) or floor.done())
            slow.commit()
            wait_until(lambda: stamps.count() == 2, hint=lambda: f"only {stamps.read().keys()} were taken")
        finally:
            ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name ~ 'floor'"
            wait_until(lambda: rows(connection, ended) or floor.done())
            assert isinstance(floor.exception(), psycopg.Error | DatabaseError)


def test_a_task_that_ran_twice_is_no_valid_run() -> None:
    """Its second stamp would hide the first."""
    with Stamps() as stamps:
        note = writer(str(stamps.path))
        note(1)
        note(2)
        assert stamps.count() == 2
        assert stamps.read().keys() == {1, 2}
        note(1)
        with pytest.raises(AssertionError, match="1 tasks ran twice"):
            stamps.read()
