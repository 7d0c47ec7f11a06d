"""The ways from the workers to the servers, one proxy for each worker and server."""

import types
from contextlib import ExitStack
from typing import Self

from tests.chaos.cluster import multi_host
from tests.proxy import Proxy


class Network:
    """A context manager. `dsns` are the servers' addresses: `Cluster.node_dsns`, or that of a PgBouncer.

    `dsn_of(i)` is what a `Fleet` wants: worker i's own way, through `proxies[i]`, to all of them.
    """

    def __init__(self, dsns: list[str], count: int) -> None:
        self.proxies: list[list[Proxy]] = [[Proxy(dsn) for dsn in dsns] for _ in range(count)]
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for proxies in self.proxies:
            for proxy in proxies:
                self._stack.enter_context(proxy)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self._stack.close()

    def dsn_of(self, index: int) -> str:
        """Give the address that leads one worker through its proxies."""
        return multi_host([proxy.dsn for proxy in self.proxies[index]])
