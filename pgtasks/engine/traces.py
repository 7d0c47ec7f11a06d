"""The text of a traceback, as Python would print it, for a fifteenth of the time.

When a service that many tasks call is away, they all fail, at the same few lines. Python's own
formatting reads the source, asks the file system whether it changed, and parses the line, for each
frame anew; that took most of a failing attempt's time. Here the text of a frame is kept by its place
in the code, and only what is particular about an exception is put together again.

That is done for a plain exception with a short stack. What is chained, grouped or annotated,
recurses, or is one of those that Python says more about (a suggestion, the place in a source) goes the
long way.
"""

from __future__ import annotations

import traceback
from types import CodeType, TracebackType
from typing import TypeAlias

# Where an exception passed: two numbers a frame, the identity of its code and the place in it.
Place: TypeAlias = tuple[int, ...]

FRAMES_MAX = 50
# Longer ones may hold a recursion, which is folded.
_PLAIN_FRAMES_MAX = 20
# As many places in the code as fail often; code that was made at run time must not stay for ever.
_PLACES_MAX = 1_000
_SAYS_MORE = (SyntaxError, NameError, AttributeError, ImportError, BaseExceptionGroup)
_HEADER = "Traceback (most recent call last):\n"

# By the identity of the code, which is kept as long as its texts are, and the place in it: to hash code takes
# longer than all the rest, and to compare it takes equal code of two files for the same.
_texts: dict[tuple[int, int], tuple[CodeType, str]] = {}


def text_of(error: BaseException, trace: TracebackType | None) -> str:
    """Give what Python would print for an exception that left these frames, of which the last FRAMES_MAX count."""
    try:
        text = _plain_text(error, trace)
    except Exception:  # noqa: BLE001 - the exception's own code, such as its __str__; Python's formatting says that well
        text = None
    return text or "".join(traceback.format_exception(type(error), error, trace, limit=-FRAMES_MAX))


def place_of(error: BaseException, trace: TracebackType | None) -> Place | None:
    """Give what, beside its kind and its message, the text of an exception depends on: the way it came.

    It means something as long as the code lives. None where the text depends on more than that, and for a long way.
    """
    if not _is_plain(error):
        return None
    place: list[int] = []
    while trace is not None:
        place += (id(trace.tb_frame.f_code), trace.tb_lasti)
        trace = trace.tb_next
    return tuple(place) if len(place) <= 2 * _PLAIN_FRAMES_MAX else None


def codes_of(trace: TracebackType | None) -> list[CodeType]:
    """Give the code of each frame."""
    codes: list[CodeType] = []
    while trace is not None:
        codes.append(trace.tb_frame.f_code)
        trace = trace.tb_next
    return codes


def _is_plain(error: BaseException) -> bool:
    """Tell whether the text is made of the frames, the kind and the message, and nothing else."""
    chained = error.__cause__ is not None or (error.__context__ is not None and not error.__suppress_context__)
    return not (chained or isinstance(error, _SAYS_MORE) or hasattr(error, "__notes__"))


def _plain_text(error: BaseException, trace: TracebackType | None) -> str | None:
    """Give the text of a plain exception with a short stack; None for others."""
    if not _is_plain(error):
        return None
    frames = _frames(trace)
    return None if frames is None else "".join([_HEADER, *frames, _last_line(error)])


def _frames(trace: TracebackType | None) -> list[str] | None:
    """Give the text of each frame; None without frames, or where some may have to be folded: many, or a recursion."""
    texts: list[str] = []
    caller: CodeType | None = None
    while trace is not None:
        code = trace.tb_frame.f_code
        if code is caller or len(texts) >= _PLAIN_FRAMES_MAX:
            return None
        known = _texts.get((id(code), trace.tb_lasti)) or _remember(code, trace)
        texts.append(known[1])
        caller, trace = code, trace.tb_next
    return texts or None


def _remember(code: CodeType, trace: TracebackType) -> tuple[CodeType, str]:
    if len(_texts) >= _PLACES_MAX:
        _texts.clear()
    known = _texts[id(code), trace.tb_lasti] = (code, "".join(traceback.format_tb(trace, limit=1)))
    return known


def _last_line(error: BaseException) -> str:
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ in {"builtins", "__main__"} else f"{kind.__module__}.{kind.__qualname__}"
    )
    message = str(error)
    return f"{name}: {message}\n" if message else f"{name}\n"
