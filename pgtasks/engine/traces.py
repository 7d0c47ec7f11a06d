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

import contextlib
import traceback
from itertools import pairwise
from types import CodeType, TracebackType

FRAMES_MAX = 50
# Longer ones may hold a recursion, which is folded.
_PLAIN_FRAMES_MAX = 20
# As many places in the code as fail often; code that was made at run time must not stay for ever.
_PLACES_MAX = 1_000
_SAYS_MORE = (SyntaxError, NameError, AttributeError, ImportError, BaseExceptionGroup)
_HEADER = "Traceback (most recent call last):\n"

# With the file: code of the same text at the same lines of another file is equal to it.
_Place = tuple[CodeType, str, int]
_texts: dict[_Place, str] = {}


def text_of(error: BaseException, trace: TracebackType | None) -> str:
    """Give what Python would print for an exception that left these frames, of which the last FRAMES_MAX count."""
    # Where the exception's own code fails, such as its __str__, Python's formatting says that well.
    with contextlib.suppress(Exception):
        frames = _frames(trace) if _is_plain(error) else None
        if frames is not None:
            return "".join([_HEADER, *frames, _last_line(error)])
    return "".join(traceback.format_exception(type(error), error, trace, limit=-FRAMES_MAX))


def _is_plain(error: BaseException) -> bool:
    chained = error.__cause__ is not None or (error.__context__ is not None and not error.__suppress_context__)
    return not (chained or isinstance(error, _SAYS_MORE) or hasattr(error, "__notes__"))


def _frames(trace: TracebackType | None) -> list[str] | None:
    """Give the text of each frame; None without frames, or with so many that some may have to be folded."""
    places: list[_Place] = []
    texts: list[str] = []
    while trace is not None:
        if len(places) >= _PLAIN_FRAMES_MAX:
            return None
        code = trace.tb_frame.f_code
        place = (code, code.co_filename, trace.tb_lasti)
        text = _texts.get(place)
        if text is None:
            if len(_texts) >= _PLACES_MAX:
                _texts.clear()
            text = _texts[place] = "".join(traceback.format_tb(trace, limit=1))
        places.append(place)
        texts.append(text)
        trace = trace.tb_next
    if not places or any(one[0] is other[0] for one, other in pairwise(places)):
        return None
    return texts


def _last_line(error: BaseException) -> str:
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ in {"builtins", "__main__"} else f"{kind.__module__}.{kind.__qualname__}"
    )
    message = str(error)
    return f"{name}: {message}\n" if message else f"{name}\n"
