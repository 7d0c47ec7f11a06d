"""The SQL state machine against a model, with handles that outlive their leases (I3 to I7, I9, I13).

`PGTASKS_TEST_MODEL_EXAMPLES=2000` runs it for longer, with other examples each time.
"""

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from pgtasks.errors import DatabaseError
from pgtasks.store import sql_files, statements
from tests.access import as_role
from tests.leases import steps
from tests.model.machine import Queue

_CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
_MORE = int(os.environ.get("PGTASKS_TEST_MODEL_EXAMPLES", "0"))
MODEL = settings(
    max_examples=_MORE or 200,
    stateful_step_count=40,
    derandomize=not _MORE,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=_CHECKS,
)
HUNT = settings(
    MODEL, max_examples=300, derandomize=True, phases=[Phase.generate], report_multiple_bugs=False, print_blob=False
)


def run_model(dsn: str, chosen: settings) -> None:
    """Run the state machine on one connection, set up as a worker's; as the owner, because it plays everybody."""
    with steps.connect(as_role(dsn, "owner")) as opened:

        class OnThisConnection(Queue):
            connection = opened

        run_state_machine_as_test(OnThisConnection, settings=chosen)


@pytest.mark.slow
@pytest.mark.timeout(120 + _MORE)
def test_every_step_leaves_the_tables_as_the_model_says(dsn: str) -> None:
    """Steps of producers, workers and people in any order; the whole tables are compared after each."""
    run_model(dsn, MODEL)


# What a model does that finds a fault: a comparison fails, a row is missing, PostgreSQL refuses a step.
FOUND = (AssertionError, KeyError, DatabaseError)
PLANTED = {
    "complete without a fence": ("tasks_complete", "AND t.lease_id = ", "AND 0 < "),
    "sweep that ignores the limit on attempts": ("leases_sweep", "t.attempt >= coalesce", "false AND 0 >= coalesce"),
    "release that charges an attempt": ("tasks_release", "greatest(t.attempt - 1, 0)", "t.attempt"),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("fault", PLANTED)
def test_the_model_finds_a_planted_fault(fault: str, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that finds nothing proves something only if it finds what is there to be found."""
    name, text, bad = PLANTED[fault]
    good = sql_files.sql(name)
    assert good.count(text) == 1, f"{name}.sql has no single {text!r} any more"
    monkeypatch.setattr(
        statements, "sql", lambda wanted: good.replace(text, bad) if wanted == name else sql_files.sql(wanted)
    )
    with pytest.raises(FOUND):
        run_model(dsn, HUNT)
