"""Fixtures of the connection tests: workers that leave traces, and a network that fails."""

from collections.abc import Iterator

import pytest

from tests.cli.conftest import offline
from tests.leases.conftest import StartWorker, start_worker, trace
from tests.proxy import Proxy

__all__ = ["StartWorker", "offline", "start_worker", "trace"]


@pytest.fixture
def proxy(dsn: str) -> Iterator[Proxy]:
    """A proxy in front of the test's database."""
    with Proxy(dsn) as running:
        yield running
