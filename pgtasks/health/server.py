"""A small HTTP server for probes and scrapers, in threads of its own, so that a blocked engine is seen.

It answers GET and HEAD of a few exact paths, one request per connection. It takes a few
connections at once and none for long, whatever clients do; what it cannot take it closes.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import socketserver
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple, Self

from pgtasks import events
from pgtasks.errors import ConfigError

CONNECTIONS_MAX = 16
# For a client to send its next bytes, and for all of a connection.
SILENT_S_MAX = 2.0
CONNECTION_S_MAX = 10.0
LOOK_S = 0.2


class Answer(NamedTuple):
    """What a page says."""

    status: int
    content_type: str
    body: bytes


# Given the client's Accept header; called in a thread of the server.
Page = Callable[[str], Answer]


def verdict(reasons: list[str]) -> Answer:
    """Answer 200 without reasons against it, 503 with them."""
    status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
    document = {"status": "failing" if reasons else "ok", "reasons": reasons}
    return Answer(status, "application/json", json.dumps(document).encode() + b"\n")


class _Request(BaseHTTPRequestHandler):
    server: _Server
    timeout = SILENT_S_MAX
    server_version, sys_version = "pgtasks", ""

    def parse_request(self) -> bool:
        """Read a request's head, and refuse what changes something elsewhere: nothing here can be changed."""
        if not super().parse_request():
            return False
        if self.command in {"GET", "HEAD"}:
            return True
        self._send(Answer(HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", b"only GET and HEAD\n"), Allow="GET, HEAD")
        return False

    def do_GET(self) -> None:
        """Answer with a page."""
        self._answer()

    def do_HEAD(self) -> None:
        """Answer with a page's head."""
        self._answer()

    def _answer(self) -> None:
        page = self.server.pages.get(self.path.partition("?")[0])
        if page is None:
            known = " ".join(sorted(self.server.pages))
            self._send(Answer(HTTPStatus.NOT_FOUND, "text/plain", f"there are: {known}\n".encode()))
            return
        try:
            answer = page(self.headers.get("Accept", ""))
        except Exception as error:  # noqa: BLE001 - whatever a page raises, the others must go on
            events.LOGGER.error("page failed", exc_info=error, extra={"pgtasks": {"path": self.path}})
            answer = Answer(HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", b"this page failed; the log says why\n")
        self._send(answer)

    def _send(self, answer: Answer, **headers: str) -> None:
        self.send_response(answer.status)
        headers |= {"Content-Type": answer.content_type, "Content-Length": str(len(answer.body))}
        for name, text in (headers | {"Cache-Control": "no-store", "Connection": "close"}).items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, *_: Any) -> None:
        """Log no requests: a probe comes every few seconds."""


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 16
    block_on_close = False

    def __init__(self, address: tuple[str, int], pages: Mapping[str, Page]) -> None:
        self.pages = pages
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._open: dict[socket.socket, float] = {}
        super().__init__(address, _Request)
        _SERVERS.add(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread, if there are not too many."""
        if len(self._open) >= CONNECTIONS_MAX:
            self.shutdown_request(request)
            return
        self._open[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """End a connection."""
        self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End connections that take too long; called every LOOK_S."""
        now = time.monotonic()
        for request, since in list(self._open.items()):
            if now - since > CONNECTION_S_MAX:
                with contextlib.suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that went away."""


# What a handler forks must not keep the port after its worker has ended.
_SERVERS: weakref.WeakSet[_Server] = weakref.WeakSet()


def _let_go() -> None:
    for one in list(_SERVERS):
        one.socket.close()


os.register_at_fork(after_in_child=_let_go)


class HealthServer:
    """Serves pages until closed; a context manager."""

    def __init__(self, host: str, port: int, pages: Mapping[str, Page], *, said: str = "--metrics-port") -> None:
        """Begin to listen; raises ConfigError, naming the option, when that cannot be done."""
        try:
            self._server = _Server((host, port), pages)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ConfigError(
                f"cannot listen on {host} port {port}: {reason} — choose another {said}, "
                "or stop what has it (--metrics-host is the address to listen on)"
            ) from error
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(LOOK_S,), name="pgtasks-http", daemon=True
        )

    def __enter__(self) -> Self:
        """Serve."""
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._server.server_close()
