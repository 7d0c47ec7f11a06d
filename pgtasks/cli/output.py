"""What commands print for programs: one JSON document, in ASCII, with keys that stay."""

from __future__ import annotations

import dataclasses
import json
import re
import secrets
import sys
from datetime import UTC, datetime
from typing import Any
from uuid import UUID


@dataclasses.dataclass(frozen=True, slots=True)
class RawJson:
    """JSON text from PostgreSQL that goes into a document as it is.

    Python could not read all of it (numbers of 5,000 digits, thousands of levels) and would
    round some (1e400), so it is not read at all.
    """

    text: str | None


def print_json(document: Any) -> None:
    """Print one document to standard output."""
    sys.stdout.write(json_text(document) + "\n")


def json_text(document: Any) -> str:
    """Give a document as ASCII text: no control character of a value is in it, escaped or not at all."""
    raw: list[str] = []
    token = secrets.token_hex(16)

    def convert(value: Any) -> Any:
        match value:
            case RawJson(text=None):
                return None
            case RawJson(text=str(text)):
                raw.append(_ascii(text))
                return token
            case datetime():
                return iso(value)
            case UUID():
                return str(value)
            case bytes():
                return value.decode("utf-8", "backslashreplace")
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        raise TypeError(f"{type(value).__name__} has no place in a JSON document")

    text = json.dumps(document, default=convert, indent=2, allow_nan=False)
    parts = text.split(f'"{token}"')
    filled = [part for pair in zip(parts, [*raw, ""], strict=True) for part in pair]
    return "".join(filled).replace("\x7f", "\\u007f")


def iso(moment: datetime) -> str:
    """Give a moment as ISO 8601 in UTC, to the microsecond: 2026-11-29T21:00:00.123456Z."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _ascii(text: str) -> str:
    r"""Write what is not ASCII as \uXXXX; in JSON it can stand nowhere but inside a string."""
    return re.sub(r"[^\x00-\x7f]", lambda match: json.dumps(match[0])[1:-1], text)
