"""The HTTP server answers few questions, quickly, whatever clients do."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress

import pytest

from pgtasks.errors import ConfigError
from pgtasks.health import server
from pgtasks.health.server import Answer, HealthServer, verdict
from tests.database import wait_until
from tests.scraping import get


def broken(_accept: str) -> Answer:
    """Fail."""
    raise ValueError("broken")


PAGES = {
    "/fine": lambda accept: Answer(200, "text/plain", accept.encode()),
    "/livez": lambda _accept: verdict(["it hangs"]),
    "/broken": broken,
}


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The port of a server with less patience than usual."""
    monkeypatch.setattr(server, "CONNECTION_S_MAX", 0.5)
    monkeypatch.setattr(server, "CONNECTIONS_MAX", 3)
    with HealthServer("127.0.0.1", 0, PAGES) as made:
        yield made.port


def ask(port: int, request: bytes) -> bytes:
    """Send bytes, and return all that comes back until the end."""
    with socket.create_connection(("127.0.0.1", port), 5) as line:
        line.sendall(request)
        return b"".join(iter(lambda: line.recv(65536), b""))


def test_it_answers_with_pages(port: int, caplog: pytest.LogCaptureFixture) -> None:
    """By exact path, whatever the query; one that fails takes nobody with it."""
    assert get(port, "/fine?x=1")[:2] == (200, "text/plain")
    failing = get(port, "/livez")
    assert (failing.status, json.loads(failing.text)) == (503, {"status": "failing", "reasons": ["it hangs"]})
    assert get(port, "/broken").status == 500
    assert [record.getMessage() for record in caplog.records] == ["page failed"]
    assert get(port, "/fine").status == 200


@pytest.mark.parametrize("path", ["/", "/fine/", "/../fine", "/%66ine"])
def test_what_is_not_there_is_404(port: int, path: str) -> None:
    """The answer says what there is."""
    reply = get(port, path)
    assert reply.status == 404
    assert "/fine" in reply.text


def test_head_gives_no_body(port: int) -> None:
    """But its length."""
    reply = ask(port, b"HEAD /fine HTTP/1.1\r\nAccept: abc\r\n\r\n")
    assert reply.startswith(b"HTTP/1.0 200 ")
    assert b"Content-Length: 3\r\n" in reply
    assert reply.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "BREW"])
def test_other_methods_are_refused(port: int, method: str) -> None:
    """Nothing can be changed here."""
    reply = ask(port, f"{method} /fine HTTP/1.1\r\n\r\n".encode())
    assert reply.startswith(b"HTTP/1.0 405 ")
    assert b"Allow: GET, HEAD\r\n" in reply


@pytest.mark.parametrize("request_", [b"\x00\xff\r\n\r\n", b"GET\r\n\r\n", b"GET /fine HTTP/9\r\n\r\n", b"\r\n"])
def test_nonsense_ends_its_connection_and_nothing_else(port: int, request_: bytes) -> None:
    """Such as a port scanner sends."""
    ask(port, request_)
    assert get(port, "/fine").status == 200


def test_slow_clients_keep_nobody_out_for_long(port: int) -> None:
    """Their connections end, though they send and send; while there are too many, others are closed at once."""
    with ExitStack() as stack:
        slow = [stack.enter_context(closing(socket.create_connection(("127.0.0.1", port), 5))) for _ in range(3)]

        def status_meanwhile() -> int:
            for line in slow:
                with suppress(OSError):
                    line.sendall(b"X")
            return get(port, "/fine").status

        wait_until(lambda: status_meanwhile() == 0)
        wait_until(lambda: status_meanwhile() == 200, server.SILENT_S_MAX * 2)


def test_a_taken_port_and_a_wrong_address_are_errors(port: int) -> None:
    """That name the option."""
    with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1 port {port}: Address already in use — choose"):
        HealthServer("127.0.0.1", port, PAGES)
    with pytest.raises(ConfigError, match="--metrics-host"):
        HealthServer("no.such.host.invalid", port, PAGES)


def test_what_a_process_forks_does_not_keep_its_port() -> None:
    """A handler's child may outlive the worker, whose successor needs the port."""
    code = (
        "import os, time; from pgtasks.health.server import HealthServer\n"
        "server = HealthServer('127.0.0.1', 0, {}); print(server.port, flush=True)\n"
        "if os.fork() == 0: os.closerange(1, 3); time.sleep(10)\n"
        "os._exit(0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=15)
    port = int(done.stdout)
    with HealthServer("127.0.0.1", port, PAGES):
        assert get(port, "/fine").status == 200
