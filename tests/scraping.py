"""Asking a worker's port."""

import socket
import urllib.error
import urllib.request
from contextlib import suppress
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families


class Reply(NamedTuple):
    """A page's status, its type, and its text; 0 when nobody answered."""

    status: int
    content_type: str
    text: str


def free_ports(count: int = 1) -> int:
    """Return a port that nobody has, as far as one can know, and neither its next ones."""
    while True:
        with socket.socket() as first:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
        with suppress(OSError, OverflowError):
            for number in range(port, port + count):
                with socket.socket() as other:
                    other.bind(("127.0.0.1", number))
            return port


def get(port: int, path: str, method: str = "GET", timeout_s: float = 10.0) -> Reply:
    """Ask for a page."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as reply:  # noqa: S310 - http, as above
            return Reply(reply.status, reply.headers["Content-Type"], reply.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return Reply(error.code, error.headers["Content-Type"], error.read().decode())
    except OSError:
        return Reply(0, "", "")


def scrape(port: int) -> dict[str, float]:
    """Return the samples of a metrics page, by name and labels as they stand there."""
    reply = get(port, "/metrics")
    assert reply.status == 200, reply
    return {
        sample.name + "".join(f" {name}={text}" for name, text in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(reply.text)
        for sample in family.samples
    }
