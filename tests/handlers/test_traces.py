"""A traceback's text is the one that Python prints, whether it was put together quickly or not."""

from __future__ import annotations

import traceback
from collections.abc import Callable

import pytest

from pgtasks.engine import traces


class Away(Exception):
    """An ordinary exception."""


class Unprintable(Exception):
    """One whose text cannot be had."""

    def __str__(self) -> str:
        raise ValueError("no text")


def plain() -> None:
    """Raise in a function that another one called."""

    def inner(number: int) -> None:
        raise Away(f"number {number}\nsecond line")

    inner(7)


def silent() -> None:
    """Raise without a message."""
    raise Away


def builtin() -> None:
    """Raise one of Python's own."""
    raise KeyError("missing")


def unprintable() -> None:
    """Raise what cannot say why."""
    raise Unprintable


def caused() -> None:
    """Raise from another exception."""
    try:
        silent()
    except Away as error:
        raise Away("later") from error


def beside() -> None:
    """Raise while another exception is handled."""
    try:
        silent()
    except Away:
        raise Away("later")  # noqa: B904 - the context is what is tested


def suppressed() -> None:
    """Raise while another exception is handled, and hide it."""
    try:
        silent()
    except Away:
        raise Away("later") from None


def noted() -> None:
    """Raise with a note."""
    error = Away("noted")
    error.add_note("look here")
    raise error


def grouped() -> None:
    """Raise several at once."""
    raise ExceptionGroup("several", [Away("one"), Away("other")])


def misspelt() -> None:
    """Raise what Python has a suggestion for."""
    "".joinn([])  # type: ignore[attr-defined]  # that there is no such method is what is tested


def unreadable() -> None:
    """Raise what shows a place in a source."""
    compile("a b", "some.py", "exec")


def recursive(depth: int = 9) -> None:
    """Call itself, then raise."""
    if depth:
        recursive(depth - 1)
    raise Away("deep down")


def deep() -> None:
    """Raise below more frames than are shown."""
    recursive(70)


CASES = (
    plain,
    silent,
    builtin,
    unprintable,
    caused,
    beside,
    suppressed,
    noted,
    grouped,
    misspelt,
    unreadable,
    recursive,
    deep,
)


@pytest.mark.parametrize("fails", CASES)
def test_it_is_what_python_prints(fails: Callable[[], None]) -> None:
    """The first time, when the frames are read, and the next, when they are known."""
    for _ in range(2):
        with pytest.raises(Exception) as caught:  # noqa: PT011 - whichever the case raises
            fails()
        error, trace = caught.value, caught.value.__traceback__
        expected = "".join(traceback.format_exception(type(error), error, trace, limit=-traces.FRAMES_MAX))
        assert traces.text_of(error, trace) == expected


def test_the_same_code_in_two_files_is_told_apart() -> None:
    """Code objects of the same text are equal, wherever they are from."""
    for file in ("eu.py", "us.py"):
        made: dict[str, Callable[[], None]] = {}
        exec(compile("def fails():\n    raise ValueError('no')\n", file, "exec"), made)  # noqa: S102 - two files with one text
        with pytest.raises(ValueError, match="no") as caught:
            made["fails"]()
        assert f'"{file}"' in traces.text_of(caught.value, caught.value.__traceback__)


def test_what_is_kept_is_bounded() -> None:
    """Functions that are made anew each time do not stay for ever."""
    for number in range(traces._PLACES_MAX + 10):  # noqa: SLF001 - the bound is what is tested
        made: dict[str, Callable[[], None]] = {}
        exec(f"def fails():\n    raise ValueError({number})", made)  # noqa: S102 - code made at run time is the case
        with pytest.raises(ValueError, match=str(number)) as caught:
            made["fails"]()
        traces.text_of(caught.value, caught.value.__traceback__)
    assert len(traces._texts) <= traces._PLACES_MAX  # noqa: SLF001 - the same bound
