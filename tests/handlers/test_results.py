"""R-05: a result that cannot be stored is a defined outcome, and the work is not done twice."""

import pytest

from tests.apps.tasks import RESULTS
from tests.database import rows
from tests.handlers.conftest import Tasks


@pytest.mark.parametrize("name", ["returns", "areturns"])
def test_a_result_that_cannot_be_stored_is_noted(tasks: Tasks, name: str) -> None:
    """R-05: completed in one run, with the reason; a coroutine nobody awaited is a failure for good."""
    added = {result: tasks.add(name, {"result": result}) for result in RESULTS}
    printed = tasks.drain()
    assert "never awaited" not in printed
    for result, task_id in added.items():
        runs = tasks.notes(task_id)
        if result == "coroutine":
            assert runs == [result, "dead: permanent"]
            assert tasks.dead(task_id)[2].startswith("the handler returned a coroutine that nobody awaited")
            continue
        assert runs == [result]
        ((status, stored, note),) = rows(
            tasks.connection, "SELECT status, result, error FROM pgtasks.history WHERE id = %s", task_id
        )
        assert (status, stored) == ("completed", None)
        assert note.startswith("result not stored: ")


def test_a_good_result_is_kept(tasks: Tasks) -> None:
    """As JSON; None as no result at all."""
    fine, nothing = tasks.add("fine", {"word": "ü 😀"}), tasks.add("nothing")
    tasks.drain()
    found = rows(tasks.connection, "SELECT id, result, error FROM pgtasks.history ORDER BY id")
    assert found == [(fine, "ü 😀", None), (nothing, None, None)]
