"""JSON in and out: what PostgreSQL can keep, refused early and by name.

``jsonb`` is narrower than Python's ``json``: no NUL and no lone surrogates in strings, no
NaN or infinity. A value that would fail in the middle of a statement is refused here, with
the path to it, before anything is sent.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pgtasks.errors import PayloadError

PAYLOAD_BYTES_MAX = 2 * 1024 * 1024
RESULT_BYTES_MAX = 2 * 1024 * 1024
DEPTH_MAX = 200
# Python's own limit on reading a number back is 4300 digits.
INTEGER_BITS_MAX = 13_000

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
# What the encoder writes for a NUL or a surrogate. A surrogate pair (an emoji) is fine, and so
# is a literal backslash before "u0000": the careful walk decides, this only says "look".
_suspicious = re.compile(r"\\u(?:0000|d[89a-f])").search


def dumps(value: Any, *, root: str = "payload", bytes_max: int = PAYLOAD_BYTES_MAX) -> str:
    """Give the JSON text of a value.

    Raises PayloadError, naming the path (``payload.a[2]``), when it holds something that is
    not JSON or that PostgreSQL refuses, and when it is larger than ``bytes_max``.
    """
    try:
        text = _encode(value)
    except (TypeError, ValueError, RecursionError):
        _explain(value, root)
        raise
    if _suspicious(text) or text.count("[") + text.count("{") > DEPTH_MAX or len(text) > 4000:
        _check(value, root, 0)
    if len(text) > bytes_max:
        raise PayloadError(
            f"{root} has {len(text):,} bytes of JSON, the limit is {bytes_max:,}: "
            "keep large data elsewhere and pass a reference",
            path=root,
        )
    return text


def loads(text: str) -> Any:
    """Read JSON that PostgreSQL kept.

    Raises PayloadError where Python cannot: numbers of over 4300 digits, thousands of levels.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PayloadError(f"payload cannot be read by Python: {type(error).__name__}: {error}") from None


def _explain(value: Any, root: str) -> None:
    try:
        _check(value, root, 0)
    except RecursionError:
        raise PayloadError(f"{root} is nested too deeply, or contains itself", path=root) from None


def _check(value: Any, path: str, depth: int) -> None:
    """Walk a value and raise at the first thing that cannot be stored."""
    if depth > DEPTH_MAX:
        raise PayloadError(f"{path} is nested more than {DEPTH_MAX} levels deep, or contains itself", path=path)
    match value:
        case None | bool():
            return
        case str():
            _check_text(value, path)
        case int():
            if value.bit_length() > INTEGER_BITS_MAX:
                raise PayloadError(f"{path} is a number of over 3,900 digits; pass it as a string", path=path)
        case float():
            if not math.isfinite(value):
                raise PayloadError(f"{path} is {value}, which JSON does not have; use null", path=path)
        case Mapping():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise PayloadError(f"{path} has the key {key!r}; keys must be strings", path=path)
                _check_text(key, f"{path} (a key)")
                _check(item, f"{path}.{key}", depth + 1)
        case list() | tuple():
            for index, item in enumerate(value):
                _check(item, f"{path}[{index}]", depth + 1)
        case _:
            raise PayloadError(
                f"{path} is a {type(value).__name__}, which is not JSON; {_advice(value)}",
                path=path,
            )


def _check_text(text: str, path: str) -> None:
    found = _UNSTORABLE.search(text)
    if found is None:
        return
    what = "a NUL character" if found[0] == "\x00" else f"the lone surrogate U+{ord(found[0]):04X}"
    raise PayloadError(f"{path} holds {what}, which PostgreSQL cannot store", path=path)


def _advice(value: object) -> str:
    match value:
        case bytes() | bytearray():
            return "pass base64 text"
        case set() | frozenset():
            return "pass a list"
        case Sequence():
            return "pass a list"
        case _ if hasattr(value, "isoformat"):
            return "pass value.isoformat()"
    return "pass strings, numbers, booleans, null, lists and dicts with string keys"


def storable(text: str, limit: int) -> str:
    """Make any text fit for a text column: unstorable characters shown as escapes, capped.

    The cap keeps the beginning and the end, because a traceback says most in its last lines.
    """
    if len(text) > limit:
        half = limit // 2
        text = f"{text[:half]}\n… {len(text) - 2 * half:,} characters left out …\n{text[-half:]}"
    return _UNSTORABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
