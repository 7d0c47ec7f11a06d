"""JSON in and out: what PostgreSQL can keep, refused early and by name.

``jsonb`` is narrower than Python's ``json``: no NUL and no lone surrogates in strings, no
NaN or infinity. A value that would fail in the middle of a statement is refused here, with
the path to it, before anything is sent.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pgtasks.errors import PayloadError

PAYLOAD_BYTES_MAX = 2 * 1024 * 1024
RESULT_BYTES_MAX = 2 * 1024 * 1024
DEPTH_MAX = 200
_KEY_CHARACTERS_SHOWN = 100
_PATH_CHARACTERS_MAX = 120
# The largest number of bits with which no number has more than the 4300 digits that Python
# reads back.
INTEGER_BITS_MAX = 14_284

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_unstorable = _UNSTORABLE.search
# What an object may hold to need no closer look, and up to which length of its JSON: such a text
# has no number that is too long.
_SCALARS = frozenset({str, int, float, bool, type(None)})
_PLAIN_CHARACTERS_MAX = 4000
# How JSON that is all ASCII writes what cannot be stored, and the halves of characters beyond 16 bits.
_escapes_unstorable = re.compile(r"\\u(?:0000|d[89a-f])").search


def _encoder() -> Callable[[Any], str]:
    """Make what turns a value without cycles into JSON text.

    ``JSONEncoder.encode`` makes a new C encoder for each value, which takes longer than to encode a
    small one; here one serves all, where this Python has it.
    """
    make = getattr(json.encoder, "c_make_encoder", None)
    pure = json.JSONEncoder(allow_nan=False, separators=(",", ":"), check_circular=False)
    if make is None:
        return pure.encode
    chunks = make(
        markers=None,
        default=pure.default,
        encoder=json.encoder.encode_basestring_ascii,
        indent=None,
        key_separator=":",
        item_separator=",",
        sort_keys=False,
        skipkeys=False,
        allow_nan=False,
    )
    return lambda value: "".join(chunks(value, 0))


_encode = _encoder()


class _Fault(Exception):
    """Something in a value that cannot be stored; its path grows while it leaves the value."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.path: list[str] = []


def dumps(value: Any, *, root: str = "payload", bytes_max: int = PAYLOAD_BYTES_MAX) -> str:
    """Give the JSON text of a value.

    Raises PayloadError, naming the path (``payload.a[2]``), when it holds something that is
    not JSON or that PostgreSQL refuses, and when it is larger than ``bytes_max``.
    """
    if (plain := _plain(value)) is not None:
        return plain
    try:
        _check(value, DEPTH_MAX)
    except _Fault as fault:
        path = shown_path(root, reversed(fault.path))
        raise PayloadError(f"{path} {fault.what}", path=path) from None
    except RecursionError:
        raise PayloadError(f"{root} is nested too deeply for this call stack", path=root) from None
    text = _encode(value)
    # The text is ASCII; only a large one is worth counting as PostgreSQL will store it.
    if len(text) > bytes_max:
        size = len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
        if size > bytes_max:
            raise PayloadError(
                f"{root} has {size:,} bytes of JSON, the limit is {bytes_max:,}: "
                "keep large data elsewhere and pass a reference",
                path=root,
            )
    return text


def _plain(value: object) -> str | None:
    """Give the text of a small flat object, which most payloads are; None for what needs a closer look."""
    if type(value) is not dict:
        return None
    for key, item in value.items():
        if type(key) is not str or type(item) not in _SCALARS:
            return None
    try:
        text = _encode(value)
    except ValueError:
        return None
    if len(text) > _PLAIN_CHARACTERS_MAX or ("\\u" in text and _escapes_unstorable(text)):
        return None
    return text


def step(key: str) -> str:
    """Give the step of a path that leads to the value of a key."""
    return f".{storable(key, _KEY_CHARACTERS_SHOWN)}"


def shown_path(root: str, parts: Iterable[str]) -> str:
    """Give the path to a part of a value; a long one without its middle."""
    path = root + "".join(parts)
    if len(path) <= _PATH_CHARACTERS_MAX:
        return path
    half = _PATH_CHARACTERS_MAX // 2
    return f"{path[:half]}…{path[-half:]}"


def loads(text: str, *, root: str = "payload") -> Any:
    """Read JSON that PostgreSQL kept.

    Raises PayloadError where Python cannot: numbers of over 4300 digits, thousands of levels.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        what = f"{type(error).__name__}: {error}"
        raise PayloadError(f"{root} cannot be read by Python: {what}", path=root) from None


def _check(value: Any, depth_left: int) -> None:
    """Raise a fault at the first thing in a value that cannot be stored as it is."""
    if isinstance(value, str):
        _check_text(value)
    elif isinstance(value, int | None):
        if value is not None and value.bit_length() > INTEGER_BITS_MAX:
            raise _Fault("is a number of over 4,299 digits; pass it as a string")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise _Fault(f"is {value}, which JSON does not have; use null")
    elif isinstance(value, dict | list | tuple):
        if depth_left <= 0:
            raise _Fault(f"is nested more than {DEPTH_MAX} levels deep, or contains itself; pass a flatter value")
        (_check_object if isinstance(value, dict) else _check_array)(value, depth_left - 1)
    else:
        raise _Fault(f"is a {type(value).__name__}, which is not JSON; {_advice(value)}")


def _check_object(value: Any, depth_left: int) -> None:
    for key, item in value.items():
        # json would turn 1 into "1": the handler would not get what was passed.
        if not isinstance(key, str):
            raise _Fault(f"has the key {key!r}; keys must be strings")
        try:
            _check(item, depth_left)
        except _Fault as fault:
            fault.path.append(step(key))
            raise
        if _unstorable(key):
            try:
                _check_text(key)
            except _Fault as fault:
                raise _Fault(f"has the key {key!r}, which {fault.what}") from None


def _check_array(value: Any, depth_left: int) -> None:
    for index, item in enumerate(value):
        try:
            _check(item, depth_left)
        except _Fault as fault:
            fault.path.append(f"[{index}]")
            raise


def _check_text(text: str) -> None:
    found = _unstorable(text)
    if found is not None:
        what = "a NUL character" if found[0] == "\x00" else f"the lone surrogate U+{ord(found[0]):04X}"
        raise _Fault(f"holds {what}, which PostgreSQL cannot store; remove or escape it")


def _advice(value: object) -> str:
    match value:
        case bytes() | bytearray():
            return "pass base64 text"
        case set() | frozenset():
            return "pass a list"
        case Mapping():
            return "pass a dict"
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
    if text.isascii() and "\0" not in text:
        return text
    return _UNSTORABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
