"""The cluster that the tests of faults share, and what they do with it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

import pytest

from tests import access
from tests.chaos.cluster import Cluster
from tests.chaos.fleet import Fleet
from tests.chaos.nemesis import Fault, Target

APP = "tests.apps.basic:app"
# Far more than a fault needs to be seen, which ends it.
LEASE_S = 20.0
_STRIKE_S_MAX = 100.0


@pytest.fixture(scope="session")
def cluster(_no_settings_of_this_machine: None) -> Iterator[Cluster]:
    """A small durable server with our schema, for faults that leave it as it was."""
    with Cluster(max_connections=30) as running:
        access.install(running.dsn)
        yield running


@pytest.fixture
def target(cluster: Cluster) -> Target:
    """The cluster without workers, for faults of the server."""
    return target_of(cluster)


def target_of(cluster: Cluster) -> Target:
    """Give a target without workers, on which faults last until they are seen."""
    return Target(cluster, Fleet(APP, lambda _: cluster.dsn, 0), lease_s=LEASE_S)


@contextmanager
def striking(fault: Fault, seed: int = 1) -> Iterator[Callable[[], bool]]:
    """Let a fault strike beside the test, until it has seen what it does; gives whether it still does.

    In the end it has been undone. An error of the fault is the test's.
    """
    errors: list[BaseException] = []

    def strike() -> None:
        try:
            fault.strike(Random(seed))
        except BaseException as error:  # noqa: BLE001 - raised again in the thread of the test
            errors.append(error)

    thread = threading.Thread(target=strike, name=fault.name, daemon=True)
    thread.start()
    try:
        yield thread.is_alive
    finally:
        fault.over.set()
        thread.join(_STRIKE_S_MAX)
    assert not thread.is_alive(), f"{fault.name} does not end"
    if errors:
        raise errors[0]
