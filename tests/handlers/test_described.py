"""An exception is put into words once for all that are equal, and its own code has no say in that."""

from __future__ import annotations

import gc
import traceback
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from pgtasks.engine import attempt, traces
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
    """By class, message, traceback and kind of end; a long one is made anew: none fills the memory."""
    assert describe(ValueError("no")) is describe(ValueError("no"))
    assert describe(ValueError("no")) != describe(KeyError("no"))
    assert describe(ValueError("a")).message == "a"
    assert describe(ValueError("b")).message == "b"
    assert describe(TaskTimeout("no")).outcome == "timed_out"
    long = "x" * KEPT_CHARACTERS_MAX
    assert describe(ValueError(long)) == describe(ValueError(long))
    assert describe(ValueError(long)) is not describe(ValueError(long))


def test_what_makes_a_text_differ_is_told_apart() -> None:
    """Of one kind, with one message and from one line: what is chained to it, noted on it, and how it came there."""

    def raised(error: Exception, cause: Exception | None = None, context: Exception | None = None) -> Exception:
        error.__context__ = context
        if cause is not None:
            error.__cause__ = cause
        with pytest.raises(Exception, match="no") as caught:
            raise error
        return caught.value

    plain = describe(raised(ValueError("no")))
    assert describe(raised(ValueError("no"))) is plain
    noted = ValueError("no")
    noted.add_note("look here")
    assert "look here" in describe(raised(noted)).traceback
    assert "KeyError" in describe(raised(ValueError("no"), cause=KeyError("why"))).traceback
    assert "KeyError" in describe(raised(ValueError("no"), context=KeyError("why"))).traceback
    for inner in (KeyError("why"), OSError("where")):
        assert type(inner).__name__ in describe(raised(ExceptionGroup("no", [inner]))).traceback
    for near in ("norman", "nobody"):
        error = raised(misspelt(near))
        assert describe(error).traceback.endswith("".join(traceback.format_exception_only(error)))
    with pytest.raises(ValueError, match="no") as caught:
        raise_here()
    assert "in raise_here" in describe(caught.value).traceback


def misspelt(near: str) -> AttributeError:
    """Make an error to which Python says, from 3.12 on, which of its object's names was meant."""
    return AttributeError("no", name=near[:-1], obj=SimpleNamespace(**{near: 1}))


def raise_here() -> None:
    """Raise the same from another place."""
    raise ValueError("no")


def test_kinds_and_code_that_are_made_anew_are_not_mistaken() -> None:
    """Something that is gone may leave its identity to what comes next; and none of it stays for ever."""
    for number in range(3 * attempt.FAILURES_KEPT):
        kind = type(f"Kind{number}", (Exception,), {})
        made: dict[str, Any] = {"Kind": kind}
        exec(compile("def fails():\n    raise Kind('no')\n", f"file{number}.py", "exec"), made)  # noqa: S102 - code made at run time is the case
        with pytest.raises(kind) as caught:
            made["fails"]()
        found = describe(caught.value)
        assert found.error_class.endswith(f"Kind{number}")
        assert f'"file{number}.py"' in found.traceback
    assert len(attempt._known) <= attempt.FAILURES_KEPT  # noqa: SLF001 - the bound is what is tested


def test_what_is_known_by_its_identity_is_kept() -> None:
    """Or the next thing that is made in its place would be taken for it."""
    made: dict[str, Any] = {"Kind": type("Kind", (Exception,), {})}
    exec("def fails():\n    raise Kind('no')\n", made)  # noqa: S102 - code made at run time is the case
    with pytest.raises(made["Kind"]) as caught:
        made["fails"]()
    describe(caught.value)
    kept = [weakref.ref(made["Kind"]), weakref.ref(made["fails"].__code__)]
    traces._texts.clear()  # noqa: SLF001 - where the code is kept, too
    made.clear()
    del caught
    gc.collect()
    assert None not in [reference() for reference in kept]


class Private(Exception):
    """One that does not let anybody look at it."""

    @property
    def __cause__(self) -> Exception:  # type: ignore[override]  # that it is none that Python knows is what is tested
        raise RuntimeError("no")


class Shrinking(Exception):
    """One whose message is long the first time, and short after that."""

    def __str__(self) -> str:
        self.args = self.args or (1,)
        count = self.args[0]
        self.args = (count + 1,)
        return "x" * (2 * KEPT_CHARACTERS_MAX) if count == 1 else "x"


def test_no_long_message_is_kept() -> None:
    """Whatever it says when it is asked again."""
    describe(Shrinking())
    assert max(len(message) for _, message, _ in attempt._known) <= KEPT_CHARACTERS_MAX  # noqa: SLF001 - what is kept is the point


def test_one_that_cannot_be_looked_at_is_described_all_the_same() -> None:
    """Whatever its attributes do."""
    assert describe(Private("why")).message == "why"


def test_a_text_with_code_of_its_own_is_taken_as_plain_text() -> None:
    """It would raise where failures are looked up, and the task would have no outcome."""
    assert describe(Odd()).message == "odd"
    assert type(describe(Odd()).message) is str
