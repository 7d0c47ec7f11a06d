"""A network between a client and PostgreSQL that fails as networks do, without privileges.

A `Proxy` listens on a TCP port of this machine and forwards to a server's Unix socket or port.
Its faults concern connections by their part, which is what a worker's `application_name`
tells: `claim`, `finish`, `heartbeat`, `listen`, or `client` for producers.

- `lose_reply(part)`: the next request arrives and its reply does not; then the connection ends.
- `lose_commit(part)`: the same for the next COMMIT of a transaction of several statements.
- `withhold_reply(part)`: the next request arrives, and the connection is silent from then on.
- `black_hole(part)`: nothing passes any more in either direction, and nobody is told.
- `swallow(part)`: the same for the present connections only; new ones are well.
- `cut(part)`: the connections end at once.
- `reset(part)`: they end with a TCP reset.
- `cut_after(count, part)`: they end after so many more bytes of replies, within a message or between two.
- `refuse`: new connections end before they begin.
- `delay_s`: each reply is this much late.
"""

import asyncio
import contextlib
import re
import socket
import struct
import threading
import types
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Self

import psycopg

_CHUNK = 65536
_READY = b"Z\x00\x00\x00\x05I"  # ReadyForQuery, idle: the end of each reply in autocommit mode.
_COMMITTED = b"C\x00\x00\x00\x0bCOMMIT\x00" + _READY
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER of no time: what is left is thrown away, and the peer gets a reset.
_PART = re.compile(rb"application_name\x00pgtasks/(\w+)")
_START_S = 5.0


@dataclass(eq=False)
class _Pair:
    """One forwarded connection."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    part: str = ""
    losing: bool = False
    silent: bool = False
    bytes_left: int | None = None
    passing: asyncio.Event = field(default_factory=asyncio.Event)

    def end(self) -> None:
        for side in (self.client, self.server):
            with contextlib.suppress(OSError, RuntimeError):
                side.transport.abort()

    def reset(self) -> None:
        for side in (self.client, self.server):
            with contextlib.suppress(OSError, RuntimeError):
                side.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.end()


class Proxy:
    """A context manager; `dsn` leads through it."""

    def __init__(self, dsn: str) -> None:
        self._target = {key: str(value) for key, value in psycopg.conninfo.conninfo_to_dict(dsn).items()}
        self.refuse = False
        self.delay_s = 0.0
        self.lost_replies = 0
        self.cuts = 0
        self._pairs: set[_Pair] = set()
        self._lose: list[str] = []
        self._withhold: list[str] = []
        self._lose_commits: list[str] = []
        self._holes: set[str] = set()
        self._port = 0
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    @property
    def dsn(self) -> str:
        """The address of the same database through this proxy."""
        return psycopg.conninfo.make_conninfo(
            "", **{**self._target, "host": "127.0.0.1", "port": str(self._port), "sslmode": "disable"}
        )

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(_START_S), "the proxy did not start"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_START_S)

    def lose_reply(self, part: str = "") -> None:
        """Forward the next request of a part, of any without a name, drop its reply, end the connection."""
        self._call(lambda: self._lose.append(part))

    def lose_commit(self, part: str = "") -> None:
        """Forward the next COMMIT of a part, of any without a name, drop its reply, end the connection."""
        self._call(lambda: self._lose_commits.append(part))

    def keep_replies(self) -> None:
        """Take back what `lose_reply`, `lose_commit` and `cut_after` have asked for and not got yet."""
        self._call(self._keep_replies)

    def withhold_reply(self, part: str) -> None:
        """Forward the next request of a part, and nothing that the server says from then on."""
        self._call(lambda: self._withhold.append(part))

    def black_hole(self, *parts: str) -> None:
        """Let nothing pass any more, on the present connections of these parts (all without a name) and new ones."""
        self._call(lambda: self._swallow(parts or ("",)))

    def swallow(self, part: str) -> None:
        """Let nothing pass any more on the present connections of a part."""
        self._call(lambda: self._stop_passing(part))

    def heal(self) -> None:
        """Let new connections pass again; those that were swallowed end, as after a reset."""
        self._call(self._heal)

    def cut(self, *parts: str) -> None:
        """End the present connections of these parts, all without a name."""
        self._call(lambda: self._cut(parts))

    def reset(self, *parts: str) -> None:
        """End the present connections of these parts, all without a name, with a TCP reset."""
        self._call(lambda: self._cut(parts, reset=True))

    def cut_after(self, count: int, *parts: str) -> None:
        """End each present connection of these parts, all without a name, after so many bytes of replies."""
        self._call(lambda: self._limit(count, parts))

    def connections(self, part: str = "") -> int:
        """Count the present connections of a part, all without a name."""
        return sum(part in {"", pair.part} for pair in list(self._pairs))

    def _call(self, work: Callable[[], None]) -> None:
        done = threading.Event()

        def run() -> None:
            work()
            done.set()

        self._loop.call_soon_threadsafe(run)
        assert done.wait(_START_S)

    def _cut(self, parts: tuple[str, ...], *, reset: bool = False) -> None:
        for pair in self._of(parts):
            if reset:
                pair.reset()
            else:
                pair.end()

    def _limit(self, count: int, parts: tuple[str, ...]) -> None:
        for pair in self._of(parts):
            pair.bytes_left = count

    def _keep_replies(self) -> None:
        self._lose.clear()
        self._lose_commits.clear()
        for pair in self._pairs:
            pair.bytes_left = None

    def _of(self, parts: tuple[str, ...]) -> list[_Pair]:
        return [pair for pair in self._pairs if not parts or pair.part in parts]

    def _stop_passing(self, part: str) -> None:
        for pair in self._pairs:
            if pair.part == part:
                pair.passing.clear()

    def _swallow(self, parts: tuple[str, ...]) -> None:
        self._holes |= set(parts)
        for pair in self._pairs:
            if self._in_hole(pair.part):
                pair.passing.clear()

    def _heal(self) -> None:
        swallowed = [pair for pair in self._pairs if self._in_hole(pair.part)]
        self._holes.clear()
        for pair in swallowed:
            pair.end()
            pair.passing.set()

    def _in_hole(self, part: str) -> bool:
        return "" in self._holes or part in self._holes

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        for pair in list(self._pairs):
            pair.end()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def _upstream(self) -> Coroutine[Any, Any, tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        host, port = self._target["host"], self._target.get("port", "5432")
        if host.startswith("/"):
            return asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return asyncio.open_connection(host, int(port))

    async def _accept(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        # In Python 3.11 a stream's own callback trips over a handler that ends as cancelled.
        with contextlib.suppress(asyncio.CancelledError):
            await self._serve(from_client, to_client)

    async def _serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        if self.refuse:
            to_client.transport.abort()
            return
        try:
            from_server, to_server = await self._upstream()
        except OSError:
            to_client.transport.abort()
            return
        pair = _Pair(to_client, to_server)
        pair.passing.set()
        self._pairs.add(pair)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._requests(pair, from_client))
                group.create_task(self._replies(pair, from_server))
        except* OSError:
            pass
        finally:
            pair.end()
            self._pairs.discard(pair)

    async def _requests(self, pair: _Pair, source: asyncio.StreamReader) -> None:
        """Forward what the client says; the first packet tells its part."""
        while data := await source.read(_CHUNK):
            if not pair.part:
                found = _PART.search(data)
                pair.part = found.group(1).decode() if found else "?"
                if self._in_hole(pair.part):
                    pair.passing.clear()
            elif not pair.losing:
                pair.losing = _taken(self._lose, pair.part)
                pair.silent = pair.silent or _taken(self._withhold, pair.part)
            await pair.passing.wait()
            pair.server.write(data)
            await pair.server.drain()
        raise ConnectionResetError

    async def _replies(self, pair: _Pair, source: asyncio.StreamReader) -> None:
        """Forward what the server says, late or not at all."""
        while data := await source.read(_CHUNK):
            if pair.silent:
                continue
            if pair.losing:
                if data.endswith(_READY):
                    self.lost_replies += 1
                    raise ConnectionResetError
                continue
            if data.endswith(_COMMITTED) and _taken(self._lose_commits, pair.part):
                self.lost_replies += 1
                raise ConnectionResetError
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            await pair.passing.wait()
            await self._deliver(pair, data)
        raise ConnectionResetError

    async def _deliver(self, pair: _Pair, data: bytes) -> None:
        """Write a reply to the client, or its beginning if the connection is to end there."""
        last = pair.bytes_left is not None and len(data) >= pair.bytes_left
        if pair.bytes_left is not None:
            data = data[: pair.bytes_left]
            pair.bytes_left -= len(data)
        pair.client.write(data)
        await pair.client.drain()
        if last:
            self.cuts += 1
            raise ConnectionResetError


def _taken(wanted: list[str], part: str) -> bool:
    """Take the first entry that means this part, and say whether there was one."""
    found = next((entry for entry in wanted if entry in {"", part}), None)
    if found is not None:
        wanted.remove(found)
    return found is not None
