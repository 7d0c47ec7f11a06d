"""Reading the payload that a person types or pipes in: what is wrong with it, where, and the fix.

Python's reader is wider and narrower than what can be stored: it takes NaN and a key twice, turns
1e400 into infinity, and gives up on 5,000 digits without saying where. So each of these becomes
a mark in the value that was read, and the first mark is told with the path to it.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pgtasks.errors import PayloadError
from pgtasks.payload import DEPTH_MAX, PAYLOAD_BYTES_MAX, shown_path, step

INPUT_BYTES_MAX = 8 * PAYLOAD_BYTES_MAX
DIGITS_MAX = 4299
NUMBER_CHARACTERS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class _Mark:
    """Stands in a value for what cannot be there."""

    what: str


def read(argument: str | None) -> dict[str, Any]:
    """Read a payload: that of the argument, of standard input for -, or none; raises PayloadError."""
    if argument is None:
        return {}
    value = _parsed(_text(_from_stdin() if argument == "-" else os.fsencode(argument)))
    for path, mark in _marks(value, "", DEPTH_MAX):
        raise PayloadError(f"{shown_path('payload', path)} {mark.what}", path=shown_path("payload", path))
    if not isinstance(value, dict):
        raise PayloadError(f'the payload must be a JSON object of arguments, such as {{"a": 1}}, got {_kind(value)}')
    return value


def _from_stdin() -> bytes:
    given = sys.stdin.buffer.read(INPUT_BYTES_MAX + 1)
    if len(given) > INPUT_BYTES_MAX:
        raise PayloadError(
            f"the payload on standard input has over {INPUT_BYTES_MAX:,} bytes, the limit is {PAYLOAD_BYTES_MAX:,}: "
            "keep large data elsewhere and pass a reference"
        )
    return given


def _text(given: bytes) -> str:
    try:
        return given.decode()
    except UnicodeDecodeError as error:
        raise PayloadError(
            f"the payload is not UTF-8 at byte {error.start}: 0x{given[error.start]:02x} — convert it, "
            "or pass binary data as base64 text"
        ) from None


def _parsed(text: str) -> Any:
    try:
        return json.loads(
            text, parse_int=_integer, parse_float=_float, parse_constant=_constant, object_pairs_hook=_object
        )
    except json.JSONDecodeError as error:
        raise PayloadError(_explained(text, error)) from None
    except RecursionError:
        raise PayloadError(f"payload is nested more than {DEPTH_MAX} levels deep; pass a flatter value") from None


def _integer(text: str) -> int | _Mark:
    digits = len(text.removeprefix("-"))
    if digits > DIGITS_MAX:
        return _Mark(f"is a number of {digits:,} digits, Python takes {DIGITS_MAX:,}; pass it as a string")
    return int(text)


def _float(text: str) -> float | _Mark:
    number = float(text)
    if math.isfinite(number):
        return number
    shown = text if len(text) <= NUMBER_CHARACTERS_SHOWN else f"{text[:NUMBER_CHARACTERS_SHOWN]}…"
    return _Mark(f"is {shown}, too large for a number of Python; pass it as a string")


def _constant(word: str) -> _Mark:
    return _Mark(f"is {word}, which JSON does not have; use null or a string")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Mark:
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    seen: set[str] = set()
    twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]  # add gives None
    return _Mark(f"has the key {twice[:100]!r} twice; leave one out")


def _marks(value: Any, path: str, depth_left: int) -> Iterator[tuple[str, _Mark]]:
    """Find the marks in a value as deep as may be stored; what lies deeper is refused with the depth."""
    if isinstance(value, _Mark):
        yield path, value
    elif depth_left and isinstance(value, dict):
        for key, item in value.items():
            yield from _marks(item, path + step(key), depth_left - 1)
    elif depth_left and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _marks(item, f"{path}[{index}]", depth_left - 1)


def _explained(text: str, error: json.JSONDecodeError) -> str:
    place = f"line {error.lineno} column {error.colno}" if "\n" in text else f"column {error.colno}"
    rest = text[error.pos : error.pos + 20].splitlines()
    near = f"near {rest[0]!r}" if rest and rest[0] else "at its end"
    hint = (
        " — keys and strings take double quotes; quote the whole for the shell with single ones"
        if ("quotes" in error.msg or "value" in error.msg)
        else ""
    )
    return f"the payload is not JSON: {error.msg[:1].lower()}{error.msg[1:]} at {place}, {near}{hint}"


def _kind(value: object) -> str:
    if value is None:
        return "null"
    return {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "an array"}[type(value)]
