"""`./dev bench latency` measures an idle worker beside its floor, and a busy one without omitting its stalls."""

import random
import time
from collections.abc import Sequence

import pytest

from bench import arrivals, database
from bench.scenario import Plan
from bench.scenarios import latency
from bench.stamps import Stamps, writer
from tests.database import Connection


@pytest.mark.pg
@pytest.mark.slow
@pytest.mark.timeout(60)
def test_each_figure_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """In little time, at one share of the capacity."""
    monkeypatch.setattr(latency, "SHARES", (50,))
    monkeypatch.setattr(latency, "GAP_S", (0.01, 0.02))
    monkeypatch.setattr(latency, "WARM_UP", 3)
    monkeypatch.setattr(latency, "KEPT_UP", 0.1)
    with database.started() as bench:
        outcome = latency.measure(bench, Plan(tasks=4, rounds=1, seconds=0.3))
    (figures,) = outcome.rounds
    wanted = {key.name for key in latency.keys(()) if not key.name.endswith(("_20", "_80"))}
    assert {name for name, value in figures.items() if value is not None} == wanted
    assert not outcome.missing


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
