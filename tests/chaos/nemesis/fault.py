"""What a fault is: something that goes wrong once, for a bounded time, and is put right again."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar, Literal

from tests.access import ROLES
from tests.chaos.cluster import Cluster
from tests.chaos.fleet import Fleet
from tests.chaos.network import Network
from tests.chaos.pgbouncer import PgBouncer

# Faults of different lanes may strike at the same time; those of one lane strike one after the other, because they
# act on the same thing: processes of workers, the server, or the way between them.
Lane = Literal["workers", "server", "network"]
# What a fault cannot do without: to be root on a disk of a cluster's own, and so on.
Need = Literal["disk", "standby", "proxy", "pgbouncer", "children"]


@dataclass(frozen=True, slots=True)
class Target:
    """What the faults of a run act on."""

    cluster: Cluster
    fleet: Fleet
    network: Network | None = None
    pgbouncer: PgBouncer | None = None
    lease_s: float = 2.0
    # Roles whose defaults may be changed: the one that the workers log in as.
    role: str = ROLES["worker"]
    # Handlers that run in processes of their own are among the tasks.
    children: bool = False

    def missing(self, needs: Sequence[Need]) -> str | None:
        """Say which of these things is not there, and how to get it; None if all are."""
        return next((_HINTS[need] for need in needs if not self._has(need)), None)

    def _has(self, need: Need) -> bool:
        return {
            "disk": self.cluster.disk_mib is not None,
            "standby": self.cluster.has_standby,
            "proxy": self.network is not None,
            "pgbouncer": self.pgbouncer is not None,
            "children": self.children,
        }[need]


_HINTS: dict[Need, str] = {
    "disk": "needs a cluster on a small disk of its own: Cluster(disk_mib=…), which only root can make",
    "standby": "needs a streaming standby: Cluster(standby=True)",
    "proxy": "needs workers that connect through proxies: a Network",
    "pgbouncer": "needs workers that connect through PgBouncer, and its program (apt-get install pgbouncer)",
    "children": 'needs tasks with executor="process"',
}


class Missed(Exception):
    """Raised by a strike that found nothing to strike; it is no failure of the run, and not counted."""


class Fault(ABC):
    """One kind of thing that goes wrong, on one target."""

    name: ClassVar[str]
    lane: ClassVar[Lane]
    needs: ClassVar[tuple[Need, ...]] = ()

    def __init__(self, target: Target) -> None:
        self.target = target
        # Set by whoever wants a strike to end soon, such as a nemesis that stops.
        self.over = threading.Event()

    def last(self, lo: float, hi: float, rng: Random) -> None:
        """Wait for a random time between so many leases, or until it is to be over."""
        self.over.wait(self.target.lease_s * rng.uniform(lo, hi))

    @abstractmethod
    def strike(self, rng: Random) -> None:
        """Let it happen once and put it right again, within seconds.

        Raises `Missed` if there was nothing to strike, anything else if it could not strike or be undone.
        """

    @abstractmethod
    def undo(self) -> None:
        """Put right whatever an interrupted `strike` left; does nothing if there is nothing."""
