"""Messages between a worker and its child processes: JSON behind four bytes that give its length.

JSON and never pickle: what a child says is data, whatever a handler did to it.
"""

from __future__ import annotations

import json
import struct
from typing import Any

# A payload and its headers, or a result, in the longest way to write them as a JSON string.
FRAME_BYTES_MAX = 64 * 1024 * 1024
_LENGTH = struct.Struct(">I")

Message = dict[str, Any]


def pack(message: Message) -> bytes:
    """Give a message as bytes; raises ValueError for one that is too large."""
    body = json.dumps(message, separators=(",", ":")).encode()
    if len(body) > FRAME_BYTES_MAX:
        raise ValueError(f"a message of {len(body):,} bytes, the limit is {FRAME_BYTES_MAX:,}")
    return _LENGTH.pack(len(body)) + body


class Unpacker:
    """Puts messages together from whatever pieces they arrive in."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """Take some bytes and give the messages that are complete; raises ValueError for what is none."""
        buffer = self._buffer
        buffer += data
        found: list[Message] = []
        while len(buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer)
            if length > FRAME_BYTES_MAX:
                raise ValueError(f"a message of {length:,} bytes")
            end = _LENGTH.size + length
            if len(buffer) < end:
                break
            found.append(_message(bytes(buffer[_LENGTH.size : end])))
            del buffer[:end]
        return found


def _message(body: bytes) -> Message:
    message = json.loads(body)
    if not isinstance(message, dict):
        raise TypeError("a message is a JSON object")
    return message
