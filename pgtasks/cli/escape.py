"""Text from the database, made safe for a terminal: nothing in it acts, all of it can be read.

A task's name is whatever somebody inserted. Left alone it could clear the screen, turn the
text around or hide in it. This module is plain Python, so that logs and errors can use it
without loading rich.
"""

from __future__ import annotations

import re

TEXT_CHARACTERS_MAX = 100_000

# Control characters (C0, DEL, C1), line and paragraph separators, bidirectional marks and
# overrides, zero-width and other invisible characters, tags, lone surrogates.
_UNSAFE = (
    "\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U000e0000-\U000e0fff"
)
_unsafe = re.compile(f"[{_UNSAFE}]")
_unsafe_but_newlines = re.compile(f"(?!\n)[{_UNSAFE}]")


def escape(value: object, *, keep_newlines: bool = False) -> str:
    r"""Give a value's text with every character that acts or hides written as \xNN or \uNNNN.

    Text in bytes (a server in SQL_ASCII sends that) is read as UTF-8 as far as it goes.
    """
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    if len(text) > TEXT_CHARACTERS_MAX:
        text = text[: TEXT_CHARACTERS_MAX - 1] + "…"
    if text.isascii() and text.isprintable():
        return text  # nearly all of it, and a tenth of the time that the expression takes to say so
    return (_unsafe_but_newlines if keep_newlines else _unsafe).sub(_written_out, text)


def shortened(text: str, characters_max: int) -> str:
    """Cut a text that is longer than that, with … at its end."""
    return text if len(text) <= characters_max else text[: characters_max - 1] + "…"


def _written_out(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code <= 0xFF:  # noqa: PLR2004 - the largest number of two hexadecimal digits
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004 - the largest of four digits
