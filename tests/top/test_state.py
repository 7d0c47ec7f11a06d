"""What a key does to the view of `pgtasks top`, and what looks add up to."""

from dataclasses import replace

import pytest

from pgtasks.cli.top_state import Action, Cancel, Pause, Quit, Resume, Selected, View, absorb, press, settled
from pgtasks.store.watching import ENDED_ROWS_MAX, EndedRow
from tests.top.pictures import NOW, ago, failure, look, picture, queue, task

PICTURE = picture(
    [queue("default"), queue("mails", paused_at=NOW)],
    [task(1, "mails", "b", age_s=5, worker="x"), task(2, "default", "a", age_s=9, worker=None), task(3, "mails", "a")],
)


def typed(keys: str, view: View | None = None) -> tuple[View, list[Action]]:
    """Press one key after the other, and return the view with all that was to be done."""
    view = view or View()
    actions: list[Action] = []
    for key in keys.split():
        view, action = press(view, PICTURE, " " if key == "space" else key)
        actions += [action] if action is not None else []
    return view, actions


def test_rows_are_selected_from_the_queues_down_to_the_tasks() -> None:
    """The oldest task first; the ends are ends."""
    assert typed("k")[0].selected == Selected("default")
    assert typed("j j")[0].selected == Selected("default", 2)
    assert typed("j j down")[0].selected == Selected("mails", 1)
    assert typed("down down down down down down up")[0].selected == Selected("mails", 1)
    assert typed("tab")[0].selected == Selected("default", 2)
    assert typed("tab tab")[0].selected == Selected("default")


def test_a_queue_is_paused_or_goes_on() -> None:
    """The selected one, or that of the selected task."""
    assert typed("p")[1] == [Pause("default")]
    assert typed("j p")[1] == [Resume("mails")]
    assert typed("j j j p")[1] == [Resume("mails")]


def test_a_task_is_cancelled_after_a_yes_only() -> None:
    """Any other key is a no, and `q` does not leave then."""
    asking, actions = typed("tab c")
    assert asking.asking == PICTURE.running[1]
    assert actions == []
    assert typed("y", asking)[1] == [Cancel(2)]
    for no in ("n", "q", "c", "escape", ""):
        view, action = press(asking, PICTURE, no)
        assert (view.asking, action, view.said) == (None, None, "nothing was cancelled")


def test_only_a_task_can_be_cancelled() -> None:
    """On a queue the key says what to do first."""
    view, actions = typed("c")
    assert view.asking is None
    assert actions == []
    assert "select a running task" in view.said


def test_other_keys() -> None:
    """Sorting goes round; freezing, help and leaving."""
    assert [typed(" ".join("s" * times))[0].sort for times in range(5)] == ["age", "queue", "name", "worker", "age"]
    assert typed("space")[0].frozen
    assert not typed("space space")[0].frozen
    assert typed("?")[0].help
    assert typed("? x") == (replace(typed("x")[0], selected=None), [])
    assert typed("q")[1] == typed("? q")[1] == [Quit()]
    assert press(View(), None, "p") == (View(), None)


@pytest.mark.parametrize(
    ("sort", "ids"), [("age", [2, 1, 3]), ("queue", [2, 1, 3]), ("name", [2, 3, 1]), ("worker", [2, 3, 1])]
)
def test_running_tasks_are_sorted(sort: str, ids: list[int]) -> None:
    """The oldest first within what is alike; a worker without a name goes by its id."""
    assert [one.id for one in PICTURE.running_by(sort)] == ids  # type: ignore[arg-type]  # each is one of the literals


def test_when_the_selected_task_has_ended_its_queue_is_selected() -> None:
    """So that `p` still means the same queue, and `c` nothing that the person has not chosen."""
    assert settled(View(selected=Selected("mails", 99)), PICTURE).selected == Selected("mails")
    assert settled(View(selected=Selected("mails", 3)), PICTURE).selected == Selected("mails", 3)
    assert settled(View(selected=Selected("gone", 99)), PICTURE).selected == Selected("default")
    assert settled(View(selected=Selected("gone")), picture()).selected is None


def test_rates_are_those_of_the_looks_of_ten_seconds() -> None:
    """Counted from look to look; an older one falls out."""
    old = absorb(None, look(22, 12, completed=[EndedRow("a", 1000, ago(22), ago(12))]))
    assert old.rates("completed") == {"a": 100.0}
    new = absorb(old, look(4, 2, completed=[EndedRow("a", 10, ago(4), ago(2))]))
    newest = absorb(new, look(2, 0, failed=[EndedRow("b", 2, ago(2), ago(0))]))
    assert newest.rates("completed") == {"a": 2.5}
    assert newest.rates("failed") == {"b": 0.5}


def test_a_rate_beyond_what_is_counted_goes_by_the_pace() -> None:
    """The limit was reached after a quarter of the time."""
    rows = [EndedRow("a", ENDED_ROWS_MAX // 2, ago(4), ago(3)), EndedRow("b", ENDED_ROWS_MAX // 2, ago(4), ago(3))]
    assert absorb(None, look(4, 0, completed=rows)).rates("completed") == {"a": 10_000.0, "b": 10_000.0}


def test_failures_are_remembered_each_once_and_newest_first() -> None:
    """A look sees those of the look before once more."""
    first = absorb(None, look(4, 2, failures=[failure(1, 3), failure(2, 2.5)]))
    then = absorb(first, look(2, 0, failures=[failure(3, 1), failure(2, 2.5)]))
    assert [one.task_id for one in then.failures] == [3, 2, 1]
