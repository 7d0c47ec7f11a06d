"""All faults by name, and which of them a target can bear."""

from collections.abc import Iterable

from tests.chaos.nemesis.clocks import WorkerClock
from tests.chaos.nemesis.connections import ConnectionLimit
from tests.chaos.nemesis.ddl import MigrateUnderLoad
from tests.chaos.nemesis.disk import DiskFull
from tests.chaos.nemesis.failover import Failover
from tests.chaos.nemesis.fault import Fault, Target
from tests.chaos.nemesis.locks import OldSnapshot, TableLock
from tests.chaos.nemesis.network import BlackHole, CutAfter, Delay, LostCommit, LostReply, Reset
from tests.chaos.nemesis.pooler import RestartPooler
from tests.chaos.nemesis.roles import ImpatientRole, ReadOnlyRole, SerializableRole
from tests.chaos.nemesis.server import CrashServer, KillBackend, TerminateSessions
from tests.chaos.nemesis.workers import KillChild, KillWorker, PauseWorker, TerminateWorker

_ALL: tuple[type[Fault], ...] = (
    KillWorker,
    PauseWorker,
    TerminateWorker,
    KillChild,
    WorkerClock,
    KillBackend,
    CrashServer,
    TerminateSessions,
    Failover,
    ConnectionLimit,
    TableLock,
    OldSnapshot,
    SerializableRole,
    ReadOnlyRole,
    ImpatientRole,
    MigrateUnderLoad,
    DiskFull,
    BlackHole,
    Reset,
    Delay,
    CutAfter,
    LostReply,
    LostCommit,
    RestartPooler,
)
FAULTS: dict[str, type[Fault]] = {kind.name: kind for kind in _ALL}
# Those that need one server, proxies and no privileges.
DEFAULT_FAULTS = tuple(kind.name for kind in _ALL if set(kind.needs) <= {"proxy"})


def missing(name: str, target: Target) -> str | None:
    """Say why a fault cannot strike this target; None if it can."""
    return target.missing(FAULTS[name].needs)


def faults(names: Iterable[str], target: Target) -> list[Fault]:
    """Make the faults of these names.

    Raises:
        ValueError: there is no such fault, or the target lacks what it needs.
    """
    made = []
    for name in names:
        if name not in FAULTS:
            raise ValueError(f"There is no fault {name!r}. Known: {', '.join(FAULTS)}.")
        reason = missing(name, target)
        if reason is not None:
            raise ValueError(f"The fault {name!r} {reason}.")
        made.append(FAULTS[name](target))
    return made
