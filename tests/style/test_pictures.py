"""The pictures of the documentation show what the program shows now; docs/pictures/make.py draws them anew."""

from io import StringIO
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console, RenderableType

from pgtasks.cli import top_screen
from pgtasks.cli.status_screen import workers_table
from pgtasks.cli.top_state import View
from tests.style.checkout import ROOT
from tests.top.pictures import NOW, failure, picture, queue, task, worker

# Those of the benchmarks are held by tests/bench/test_published.py.
PICTURES = [path for path in sorted(ROOT.joinpath("docs", "pictures").glob("*.svg")) if "bench-" not in path.name]
TOP = top_screen.screen(
    picture([queue("q")], [task(1)], [worker()], failures=[failure(1)]), View(), interval_s=2, height=24
)
STATUS_WORDS = "queue queued running retrying sched. dead done/1h oldest rate/s worker queues busy state seen version"


def headings(drawing: RenderableType) -> set[str]:
    """Return the words of what a drawing has in bold: its headings."""
    console = Console(width=80, record=True, file=StringIO(), force_terminal=True)
    return {
        word
        for segment in console.render(drawing)
        if segment.style is not None and segment.style.bold
        for word in segment.text.split()
    }


def words(name: str) -> set[str]:
    """Return the words that a picture shows."""
    root = ET.parse(ROOT / "docs" / "pictures" / name).getroot()  # noqa: S314 - a file of this repository
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    return {word for text in root.iter("{http://www.w3.org/2000/svg}text") for word in "".join(text.itertext()).split()}


@pytest.mark.parametrize("name", ["status.svg", "status-watch.svg"])
def test_the_pictures_of_status_have_its_headings(name: str) -> None:
    """Those of the queues as docs/cli.md explains them, those of the workers as they are drawn."""
    expected = {*STATUS_WORDS.split(), *headings(workers_table([worker()], NOW))}
    assert expected - words(name) == set(), "draw them anew: docs/pictures/make.py"


def test_the_picture_of_top_has_its_headings() -> None:
    """Those of all four lists."""
    expected = headings(TOP) - {"1,"}
    assert {"done/s", "att.", "error", "stuck"} <= expected
    assert expected - words("top.svg") == set(), "draw it anew: docs/pictures/make.py"


def test_every_picture_is_shown_and_fetches_nothing() -> None:
    """In docs/cli.md; a font from elsewhere would tell its host who reads the page."""
    assert {path.name for path in PICTURES} == {"status.svg", "status-watch.svg", "top.svg"}
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    for path in PICTURES:
        assert f"(pictures/{path.name})" in page
        assert "@import" not in path.read_text(encoding="utf-8")
        assert "url(http" not in path.read_text(encoding="utf-8")
    assert "(docs/pictures/top.svg)" in (ROOT / "README.md").read_text(encoding="utf-8")
