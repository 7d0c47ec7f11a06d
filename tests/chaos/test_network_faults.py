"""Each fault of the network really strikes the way of one worker, and is undone."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from random import Random

import psycopg
import pytest

from tests.chaos.conftest import striking
from tests.chaos.nemesis import Fault, Missed, Target
from tests.chaos.nemesis.network import BlackHole, CutAfter, Delay, LostCommit, LostReply, Reset
from tests.chaos.network import Network
from tests.database import Connection, value, wait_until

pytestmark = [pytest.mark.pg, pytest.mark.timeout(120)]

PARTS = ("claim", "finish", "heartbeat")


@pytest.fixture
def network(target: Target) -> Iterator[Network]:
    """The ways of two workers; the faults of these tests strike whichever they choose."""
    with Network(target.cluster.node_dsns, 2) as running:
        yield running


@pytest.fixture
def connections(network: Network) -> Iterator[list[Connection]]:
    """Sessions of each of the two workers, one for each of their parts, and a table to write to."""
    with ExitStack() as stack:
        opened = [
            stack.enter_context(
                psycopg.connect(network.dsn_of(index), application_name=f"pgtasks/{part}", autocommit=True)
            )
            for index in range(2)
            for part in PARTS
        ]
        opened[0].execute("CREATE TABLE IF NOT EXISTS public.written (by int); TRUNCATE public.written")
        yield opened


def through(target: Target, network: Network) -> Target:
    """Give the target whose workers go through these proxies."""
    return replace(target, network=network)


def broken(connections: list[Connection]) -> list[int]:
    """Write once through each session, and give the numbers of those that end without an answer."""
    found = []
    for number, connection in enumerate(connections):
        try:
            connection.execute("INSERT INTO public.written VALUES (%s)", (number,))
        except psycopg.OperationalError:
            found.append(number)
    return found


def is_one_worker(numbers: list[int]) -> bool:
    """Say whether these are the sessions of one of the two workers, and all of them."""
    return numbers in ([0, 1, 2], [3, 4, 5])


def let_in(network: Network) -> bool:
    """Say whether both workers get through with new sessions."""
    for index in range(2):
        with psycopg.connect(network.dsn_of(index), connect_timeout=10, autocommit=True) as connection:
            assert value(connection, "SELECT 1") == 1
    return True


def test_packets_of_one_worker_vanish(target: Target, network: Network, connections: list[Connection]) -> None:
    """A new session gets no answer while it lasts; the present ones have ended when it is over."""
    with striking(BlackHole(through(target, network))) as still:
        wait_until(lambda: any(not _gets_in(network, index) for index in range(2)))
        assert still()
    assert is_one_worker(broken(connections))
    assert let_in(network)


def test_connections_of_one_worker_are_reset(target: Target, network: Network, connections: list[Connection]) -> None:
    """The client hears of it as a reset, not as an orderly end as after `cut`."""
    ports = [int(psycopg.conninfo.conninfo_to_dict(network.dsn_of(index))["port"] or 0) for index in range(2)]
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for port in ports]
        wait_until(lambda: all(proxy.connections() == 4 for proxies in network.proxies for proxy in proxies))
        Reset(through(target, network)).strike(Random(1))
        ended = broken(connections)
        assert is_one_worker(ended)
        struck = ended[0] // 3
        with pytest.raises(ConnectionResetError):
            sockets[struck].recv(1)
        network.proxies[1 - struck][0].cut()
        assert sockets[1 - struck].recv(1) == b""
    assert let_in(network)


def test_replies_to_one_worker_are_late(target: Target, network: Network, connections: list[Connection]) -> None:
    """By up to half a lease, and nothing is lost."""
    with striking(Delay(replace(through(target, network), lease_s=5.0))) as still:
        wait_until(lambda: any(_late_s(network)))
        late_s = max(_late_s(network))
        wait_until(lambda: any(_takes_s(connection) > late_s for connection in connections[::3]))
        assert still()
    assert not broken(connections)
    assert not any(_late_s(network))


def test_connections_end_within_a_reply(target: Target, network: Network, connections: list[Connection]) -> None:
    """All of one worker are cut after so many bytes; those that said too little are whole."""
    found: list[int] = []
    with striking(CutAfter(through(target, network))) as still:
        while still():
            found += broken([connection for connection in connections if not connection.closed])
    assert found
    assert sum(proxy.cuts for proxies in network.proxies for proxy in proxies) >= 1
    ended = [number for number, connection in enumerate(connections) if connection.closed]
    assert {number // 3 for number in ended} in ({0}, {1})
    assert let_in(network)


def test_a_statement_is_written_and_its_reply_is_lost(
    target: Target, network: Network, connections: list[Connection]
) -> None:
    """One session ends without an answer, and what it wrote is there."""
    found: list[int] = []
    rounds = 0
    with striking(LostReply(through(target, network))) as still:
        while not found and still():
            found = broken(connections)
            rounds += 1
    assert len(found) == 1
    with psycopg.connect(target.cluster.dsn) as direct:
        assert value(direct, "SELECT count(*) FROM public.written WHERE by = %s", found[0]) == rounds
    assert let_in(network)


def test_a_transaction_is_committed_and_its_reply_is_lost(
    target: Target, network: Network, connections: list[Connection]
) -> None:
    """The same for the COMMIT of two statements; replies within the transaction arrive."""
    lost = 0
    with striking(LostCommit(through(target, network))) as still:
        while still() and not lost:
            for connection in connections[::3]:
                try:
                    with connection.transaction():
                        connection.execute("INSERT INTO public.written VALUES (-1)")
                        connection.execute("INSERT INTO public.written VALUES (-1)")
                    with psycopg.connect(target.cluster.dsn, autocommit=True) as direct:
                        direct.execute("DELETE FROM public.written")
                except psycopg.OperationalError:
                    lost += 1
                    break
    assert lost == 1
    with psycopg.connect(target.cluster.dsn) as direct:
        assert value(direct, "SELECT count(*) FROM public.written") == 2
    assert let_in(network)


@pytest.mark.parametrize("kind", [LostReply, LostCommit])
def test_a_silent_way_has_nothing_to_lose(
    kind: type[Fault], target: Target, network: Network, connections: list[Connection]
) -> None:
    """It does not count then, and the next statements and transactions keep their replies."""
    fault = kind(through(target, network))
    fault.patience_s = 0.1  # type: ignore[attr-defined]  # faults of the network have it
    with pytest.raises(Missed):
        fault.strike(Random(1))
    assert not broken(connections)
    for connection in connections:
        with connection.transaction():
            connection.execute("SELECT 1")


def _gets_in(network: Network, index: int) -> bool:
    # libpq takes a timeout of one second as two.
    try:
        psycopg.connect(network.dsn_of(index), connect_timeout=1).close()
    except psycopg.OperationalError:
        return False
    return True


def _late_s(network: Network) -> list[float]:
    return [proxy.delay_s for proxies in network.proxies for proxy in proxies]


def _takes_s(connection: Connection) -> float:
    began = time.monotonic()
    connection.execute("SELECT 1")
    return time.monotonic() - began
