"""Just enough of the PostgreSQL protocol to look after a local server.

The supervisor must start within milliseconds and must not depend on a driver, and it asks four
questions only: do you answer, is there a database, who is connected, and "make this database".
So this speaks protocol 3.0 over a Unix socket with trust authentication: the start-up message
and the simple query, text results. Everything else of pgtasks talks through psycopg.
"""

import socket
import struct
import types
from pathlib import Path
from typing import Self

Row = tuple[str | None, ...]

STARTING = "57P03"
MISSING_DATABASE = "3D000"

_PROTOCOL_3 = 196_608
_LENGTH_BYTES = 4
_MESSAGE_BYTES_MAX = 16 * 1024 * 1024


class WireError(Exception):
    """Raised when the server refuses or does not speak as expected.

    `sqlstate` is the server's error code, empty when the connection itself failed.
    """

    def __init__(self, message: str, sqlstate: str = "") -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


class Session:
    """One connection to a server's Unix socket, as a superuser who is trusted there."""

    def __init__(self, socket_path: Path, *, user: str, database: str, timeout_s: float) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout_s)
        try:
            self._socket.connect(str(socket_path))
            self._start_up(user, database)
        except OSError as error:
            self._socket.close()
            raise WireError(f"no answer on {socket_path}: {error}") from error
        except WireError:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Say goodbye and close the socket."""
        try:
            self._socket.sendall(b"X\x00\x00\x00\x04")
        except OSError:
            pass  # The server may be gone already, which is as good as a goodbye.
        finally:
            self._socket.close()

    def query(self, sql: str) -> list[Row]:
        """Run one statement and return its rows, every value as text.

        Raises:
            WireError: the statement failed, or the connection broke.
        """
        body = sql.encode() + b"\x00"
        rows: list[Row] = []
        failure: WireError | None = None
        try:
            self._socket.sendall(b"Q" + struct.pack("!I", len(body) + _LENGTH_BYTES) + body)
            while True:
                kind, message = self._read_message()
                if kind == b"D":
                    rows.append(_decode_row(message))
                elif kind == b"E":
                    failure = _decode_error(message)
                elif kind == b"Z":
                    break
        except OSError as error:
            raise WireError(f"the connection broke: {error}") from error
        if failure is not None:
            raise failure
        return rows

    def _start_up(self, user: str, database: str) -> None:
        fields = ["user", user, "database", database, "application_name", "pgtasks/embedded"]
        body = b"".join(field.encode() + b"\x00" for field in fields) + b"\x00"
        self._socket.sendall(struct.pack("!II", len(body) + 8, _PROTOCOL_3) + body)
        while True:
            kind, message = self._read_message()
            if kind == b"Z":
                return
            if kind == b"E":
                raise _decode_error(message)
            if kind == b"R" and struct.unpack("!I", message[:4]) != (0,):
                raise WireError("the server asks for a password on its local socket")

    def _read_message(self) -> tuple[bytes, bytes]:
        header = self._read_exactly(5)
        (length,) = struct.unpack("!I", header[1:])
        if not _LENGTH_BYTES <= length <= _MESSAGE_BYTES_MAX:
            raise WireError(f"the server sent a message of {length} bytes")
        return header[:1], self._read_exactly(length - _LENGTH_BYTES)

    def _read_exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            chunk = self._socket.recv(count - len(data))
            if not chunk:
                raise WireError("the server closed the connection")
            data += chunk
        return bytes(data)


def _decode_row(message: bytes) -> Row:
    (count,) = struct.unpack("!H", message[:2])
    at = 2
    values: list[str | None] = []
    for _ in range(count):
        (size,) = struct.unpack("!i", message[at : at + 4])
        at += 4
        if size < 0:
            values.append(None)
            continue
        values.append(message[at : at + size].decode(errors="replace"))
        at += size
    return tuple(values)


def _decode_error(message: bytes) -> WireError:
    fields = {part[:1]: part[1:].decode(errors="replace") for part in message.split(b"\x00") if part}
    return WireError(fields.get(b"M", "unknown error"), fields.get(b"C", ""))
