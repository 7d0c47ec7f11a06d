"""The drawing of `pgtasks top`: always as many lines as there are, with everything that matters on 80 x 24."""

import unicodedata
from io import StringIO

import pytest
from rich.cells import cell_len
from rich.console import Console

from pgtasks.cli.top_screen import error_line, screen, shares, window
from pgtasks.cli.top_state import Picture, Selected, View
from tests.cli.hostile import ERRORS, NAMES
from tests.top.pictures import NOW, failure, picture, queue, task, worker

FULL = picture(
    [queue(f"queue-{n:02}", queued=n, running=10) for n in range(30)],
    [task(4_000_000_000 + n, f"queue-{n % 30:02}", age_s=100 - n / 10) for n in range(200)],
    [worker(f"worker-{n}") for n in range(20)],
    failures=[failure(4_000_000_000 + n, n) for n in range(50)],
)


def drawn(shown: Picture | None, view: View | None = None, *, width: int = 80, height: int = 24) -> list[str]:
    """Return the lines of a drawing."""
    console = Console(width=width, height=height, file=StringIO(), record=True, color_system=None)
    console.print(screen(shown, view or View(), interval_s=2, height=height), end="")
    return console.export_text(styles=False).split("\n")


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 60), (40, 10), (20, 5), (1, 1)])
@pytest.mark.parametrize("shown", [FULL, picture(), None], ids=["full", "empty", "none"])
def test_the_terminal_is_filled_and_no_more(shown: Picture | None, width: int, height: int) -> None:
    """Whatever its size and whatever there is to show."""
    lines = drawn(shown, width=width, height=height)
    assert len(lines) == height
    assert {cell_len(line) for line in lines} == {width}


def test_all_lists_are_there_on_80_columns_and_24_lines() -> None:
    """Each with its heading and some rows, the keys below."""
    text = "\n".join(drawn(FULL, View(selected=Selected("queue-00"))))
    for expected in (
        ">queue-00",
        "running: 300, 200 oldest",
        "4000000000",
        "1m40s",
        "ValueError: boom",
        "worker-2",
        "2/8",
    ):
        assert expected in text
    assert "more" not in text
    assert drawn(FULL)[-1].startswith("q quit")
    assert "? help" in drawn(FULL)[-1]


def test_the_selected_row_is_always_in_sight() -> None:
    """Its list is a window around it."""
    assert any(line.startswith(">queue-25") for line in drawn(FULL, View(selected=Selected("queue-25"))))
    assert any(
        line.startswith(">4000000150") for line in drawn(FULL, View(selected=Selected("queue-00", 4_000_000_150)))
    )


def test_an_empty_database_says_so() -> None:
    """In the place of each list."""
    text = "\n".join(drawn(picture()))
    for expected in ("no queues yet", "nothing runs", "nothing failed", "no workers"):
        assert expected in text


def test_states_and_estimates_are_marked() -> None:
    """A paused queue, an estimate, a task that is to stop, stuck handlers."""
    shown = picture(
        [queue("mails", queued=1_234_567, estimated=True, paused_at=NOW, dead=7, dead_estimated=True)],
        [task(1)._replace(is_cancelled=True)],
        [worker(stuck=3), worker("silent", alive=False)],
    )
    text = "\n".join(drawn(shown))
    for expected in ("(paused)", "~1.2M", "~7", "(stopping)", "3  busy", "silent"):
        assert expected in text


def test_the_footer_asks_says_and_warns() -> None:
    """A question before all else, then a trouble, then what was done."""
    view = View(said="queue mails goes on")
    assert drawn(FULL, view)[-1].startswith("queue mails goes on")
    assert drawn(FULL, View(said="x", trouble="trying again: gone"))[-1].startswith("trying again: gone")
    asking = View(trouble="x", asking=task(5, name="ma\x1bil"))
    assert drawn(FULL, asking)[-1].startswith("cancel task 5, ma\\x1bil? y/n")
    assert "frozen" in drawn(FULL, View(frozen=True))[0]
    assert "page up" in "\n".join(drawn(FULL, View(help=True)))


def test_hostile_text_does_not_act() -> None:
    """X-02: from every column, also in the question."""
    shown = picture(
        [queue(name) for name in NAMES],
        [task(n, name, name, worker=ERRORS[n % len(ERRORS)]) for n, name in enumerate(NAMES)],
        [worker(error, queues=[NAMES[n]]) for n, error in enumerate(ERRORS)],
        failures=[
            failure(n, name=name, error=error) for n, (name, error) in enumerate(zip(NAMES, ERRORS, strict=False))
        ],
    )
    lines = drawn(shown, View(asking=task(1, name=NAMES[3])), height=60)
    assert {c for c in "".join(lines) if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}} == set()
    assert {cell_len(line) for line in lines} == {80}
    assert "[bold]x[/bold]" in "".join(lines)


def test_an_error_is_shown_by_its_first_line() -> None:
    """Blank lines before it do not count; without any the outcome stands there."""
    assert error_line(failure(1, error="\n  boom\nmore")) == "ValueError: boom"
    assert error_line(failure(1, error=None, error_class=None, outcome="timed_out")) == "timed out"


def test_lines_are_shared() -> None:
    """First the least for each, then one by one; too few are taken from the longest."""
    assert shares(15, [4, 5, 3, 3], [4, 5, 3, 3]) == [4, 5, 3, 3]
    assert shares(15, [1, 50, 1, 1], [4, 5, 3, 3]) == [1, 12, 1, 1]
    assert shares(20, [50, 50, 1, 50], [4, 5, 3, 3]) == [7, 7, 1, 5]
    assert shares(8, [50, 50, 50, 50], [4, 5, 3, 3]) == [2, 2, 2, 2]
    assert shares(-3, [50, 50, 50, 50], [4, 5, 3, 3]) == [1, 1, 1, 1]


def test_a_window_shows_the_row_and_keeps_to_the_ends() -> None:
    """In the middle where there is room."""
    rows = list(range(10))
    assert window(rows, None, 3) == window(rows, 0, 3) == [0, 1, 2]
    assert window(rows, 5, 3) == [4, 5, 6]
    assert window(rows, 9, 3) == [7, 8, 9]
    assert window(rows, 1, 20) == rows
