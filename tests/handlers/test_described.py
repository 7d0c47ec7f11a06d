"""An exception is put into words once for all that are equal, and its own code has no say in that."""

from __future__ import annotations

from pgtasks.engine import attempt
from pgtasks.engine.attempt import KEPT_CHARACTERS_MAX, describe
from pgtasks.errors import TaskTimeout


class OddText(str):
    """A text that cannot be compared or hashed."""

    __slots__ = ()

    def __hash__(self) -> int:
        raise RuntimeError("no hash")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")


class Odd(Exception):
    """One whose text is such."""

    def __str__(self) -> str:
        return OddText("odd")


def test_equal_failures_are_one() -> None:
    """By class, message, traceback and kind of end; a longer one is made anew, so that none fills the memory."""
    assert describe(ValueError("no")) is describe(ValueError("no"))
    assert describe(ValueError("no")) != describe(KeyError("no"))
    assert describe(ValueError("a")).message == "a"
    assert describe(ValueError("b")).message == "b"
    assert describe(TaskTimeout("no")).outcome == "timed_out"
    before = attempt._kept_failure.cache_info().currsize  # noqa: SLF001 - what is kept is the point
    long = "x" * KEPT_CHARACTERS_MAX
    assert describe(ValueError(long)) == describe(ValueError(long))
    assert describe(ValueError(long)) is not describe(ValueError(long))
    assert attempt._kept_failure.cache_info().currsize == before  # noqa: SLF001 - how many are kept is too


def test_a_text_with_code_of_its_own_is_taken_as_plain_text() -> None:
    """It would raise where failures are looked up, and the task would have no outcome."""
    assert describe(Odd()).message == "odd"
    assert type(describe(Odd()).message) is str
