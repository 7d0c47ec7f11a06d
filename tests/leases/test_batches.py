"""Batches of outcomes: bounded by rows and by bytes, so that each is written within a statement's time limit."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtasks import App
from pgtasks.engine.attempt import Attempt
from pgtasks.engine.outgoing import BYTES_MAX, ROWS_MAX, batches_of
from pgtasks.engine.runners import Finished
from pgtasks.model import Claimed
from pgtasks.outcome import Completed, Dead, Failure, Outcome, Released, RetryIn
from tests.database import Connection, value
from tests.leases import steps
from tests.leases.writing import Writer

app = App()


@app.task(name=steps.NAME)
async def job() -> None:
    """Do nothing."""


def attempt(task_id: int, payload: str = "{}", lease_id: int = 1) -> Attempt:
    """Return an attempt of a task that was claimed under a lease."""
    task = Claimed(task_id, lease_id, steps.NAME, payload, 1, None, None, 0, steps.LONG_AGO, None)
    return Attempt(task, app.handlers[steps.NAME], "default", 0.0)


def sizes(*outcomes: Outcome, payload: str = "{}", bytes_max: int = 1000) -> list[int]:
    """Return the rows of each batch that these outcomes make."""
    finished = [(attempt(number, payload), outcome) for number, outcome in enumerate(outcomes)]
    return [len(batch) for batch in batches_of(finished, bytes_max)]


def test_rows_bound_a_batch() -> None:
    """As many as a statement takes, in the order of the ids."""
    finished = [(attempt(number), Completed()) for number in range(2 * ROWS_MAX, -1, -1)]
    batches = batches_of(finished, BYTES_MAX)
    assert [len(batch) for batch in batches] == [ROWS_MAX, ROWS_MAX, 1]
    ids = [task_id for batch in batches for task_id, _ in batch.held_by()]
    assert ids == sorted(ids)


@given(st.data())
def test_batches_stay_sorted(data: st.DataObject) -> None:
    """However they are cut, halved and sorted out: a row's values are found by the place of its id."""
    ids = data.draw(st.lists(st.integers(1, 40), max_size=30))
    finished: Finished = [(attempt(task_id, lease_id=n), Completed("1")) for n, task_id in enumerate(ids)]
    batches = batches_of(finished, data.draw(st.sampled_from([3, 10, 1000])))
    for _ in range(2):
        batches = [half for batch in batches for half in (batch.halves() if len(batch) > 1 else [batch])]
        locked = data.draw(st.sets(st.integers(1, 40)))
        batches = [part for batch in batches for parts in batch.sorted_out(locked) for part in parts]
    assert sorted(key for batch in batches for key in batch.held_by()) == sorted(zip(ids, range(len(ids)), strict=True))
    for batch in batches:
        assert batch.held_by() == sorted(batch.held_by())


def test_bytes_bound_a_batch() -> None:
    """Results, tracebacks and payloads count; what is too large for any batch is one by itself."""
    assert sizes(*[Completed("x" * 300)] * 7) == [3, 3, 1]
    assert sizes(Completed("x"), Completed("x" * 5000), Completed("x")) == [1, 1, 1]
    assert sizes(*[Completed()] * 4, payload="x" * 400) == [2, 2]
    failure = Failure("E", "x" * 200, "x" * 200)
    assert sizes(*[RetryIn(1.0, failure)] * 4) == [2, 2]
    assert sizes(*[Dead("permanent", failure)] * 4) == [2, 2]
    assert sizes(*[Completed("\N{EURO SIGN}" * 100)] * 4) == [2, 2]


def test_each_kind_has_its_batches() -> None:
    """One statement writes outcomes of one kind."""
    finished: Finished = [(attempt(1), Completed()), (attempt(2), Released()), (attempt(3), Completed())]
    assert [(batch.kind, len(batch)) for batch in batches_of(finished, 1000)] == [("complete", 2), ("release", 1)]


@pytest.mark.slow
@pytest.mark.timeout(60)
async def test_the_largest_results_go_in_promptly(dsn: str, connection: Connection) -> None:
    """A hundred results of 2 MiB, as the default concurrency may bring at once: no statement comes near its limit."""
    result = '"' + "x" * (2 * 2**20 - 2) + '"'
    steps.enqueue(connection, 100)
    async with Writer(dsn, connection) as writer:
        tasks = writer.claim(100)
        began = time.monotonic()
        writer.offer([(task, Completed(result)) for task in tasks])
        await writer.until(lambda: writer.completer.written, 5)
        await writer.until_written(40)
        assert (writer.failures, writer.completer.written) == (0, 100)
    print(f"{time.monotonic() - began:.1f} s")  # noqa: T201 - for whoever looks for the reason of a failure
    assert value(connection, "SELECT count(*) FROM pgtasks.history WHERE length(result #>> '{}') = 2097150") == 100
