"""One run: a fresh cluster, workers, work and faults; then calm, a drain, and the history of all of it."""

import json
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import psycopg

from tests import access
from tests.apps import chaos
from tests.chaos import nemesis, planted, workload
from tests.chaos.cluster import Cluster
from tests.chaos.fleet import Fleet
from tests.chaos.history import Deed, History, Mark, Sent, read_log, read_tables
from tests.chaos.nemesis import FAULTS, Target
from tests.chaos.network import Network
from tests.chaos.pgbouncer import PgBouncer
from tests.chaos.report import UNDISTURBED_S
from tests.database import wait_until

APP = "tests.apps.chaos:app"
REFUSED = "lease lost, result refused"
POOLER = "restart_pgbouncer"
DISK_MIB = 400
KEEP_S = 0.5
SETTLED_S_MAX = 60.0
CAUGHT_UP, CAUGHT_UP_S_MAX = 20, 120.0
_HEARD = b"SELECT name FROM pgtasks.workers WHERE last_seen_at > clock_timestamp() - interval '3 s'"


@dataclass(frozen=True)
class Plan:
    """What a run is to be."""

    seed: int
    duration_s: float
    faults: Sequence[str]
    workers: int = 4
    plant: str | None = None
    lease_s: float = 2.0
    sweep_s: float = 0.5
    grace_s: float = 8.0
    concurrency: int = 20
    mix: dict[str, float] = field(default_factory=lambda: dict(workload.MIX))
    pause_s: float = 0.15
    pauses_s: tuple[float, float] = (0.2, 2.0)
    drain_s_max: float = 120.0
    # How many workers are killed one after the other in the end, while nothing else goes wrong.
    kills: int = 0
    # How many workers are stopped one after the other in the end, under load; None for all.
    stops: int | None = None

    def needs(self, what: str) -> bool:
        """Tell whether some of the faults need this."""
        return any(what in FAULTS[name].needs for name in self.faults)


@dataclass
class Result:
    """What a run was."""

    history: History
    faults: Counter[str] = field(default_factory=Counter)
    # Faults that could not strike or be undone: then the run says nothing.
    failures: list[str] = field(default_factory=list)


class WatchedFleet(Fleet):
    """A fleet that notes what is done to its processes."""

    deeds: list[Deed]
    # Whether no fault is about: then a worker that is asked to stop has no excuse.
    calm = False

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]  # whatever a Fleet takes
        self.deeds = []
        self._asked: dict[int, tuple[int, int, bool]] = {}
        self._frozen: dict[int, tuple[int, int]] = {}

    def kill(self, index: int) -> None:
        """Kill it, and note when."""
        if self.alive(index):
            now = time.monotonic_ns()
            self.deeds.append(Deed("kill", now, now, self.pid(index)))
        super().kill(index)

    def pause(self, index: int) -> None:
        """Freeze it, and note when."""
        self._frozen[index] = (self.pid(index), time.monotonic_ns())
        super().pause(index)

    def resume(self, index: int) -> None:
        """Let it go on, and note for how long it was frozen."""
        super().resume(index)
        if index in self._frozen:
            pid, began = self._frozen.pop(index)
            self.deeds.append(Deed("pause", began, time.monotonic_ns(), pid))

    def terminate(self, index: int) -> None:
        """Ask it to stop, and note when."""
        self._asked[index] = (self.pid(index), time.monotonic_ns(), self.calm)
        super().terminate(index)

    def wait(self, index: int, timeout_s: float = 60.0) -> int:
        """Wait for its end, and note how it ended."""
        code = super().wait(index, timeout_s)
        if index in self._asked:
            pid, began, alone = self._asked.pop(index)
            self.deeds.append(Deed("term", began, time.monotonic_ns(), pid, code, alone))
        return code


Step = Literal["start", "faults", "kills", "stops", "drain", "check"]
Progress = Callable[[Step, str], None]


class Stage:
    """The parts of a run; everything ends with the stack."""

    def __init__(
        self, plan: Plan, folder: Path, stack: ExitStack, progress: Progress, cluster: Cluster | None = None
    ) -> None:
        self.plan, self.folder, self._stack, self._progress = plan, folder, stack, progress
        self._began: dict[str, int] = {}
        self._deeds: list[Deed] = []
        self._keeping = threading.Event()
        progress("start", "a fresh cluster")
        self.cluster = cluster or stack.enter_context(
            Cluster(standby=plan.needs("standby"), disk_mib=DISK_MIB if plan.needs("disk") else None)
        )
        make_schema(self.cluster)
        planted.in_database(plan.plant, self.cluster.dsn)
        behind = access.as_role(self.cluster.dsn, "worker")
        self.pooler = stack.enter_context(PgBouncer(behind)) if plan.needs("pgbouncer") else None
        dsns = self.cluster.node_dsns if self.pooler is None else [self.pooler.dsn]
        self.network = stack.enter_context(Network(dsns, plan.workers))
        self.fleet = stack.enter_context(self._fleet())
        self.fleet.wait_ready()

    def _fleet(self) -> WatchedFleet:
        plan = self.plan
        flags = {
            "--lease": plan.lease_s,
            "--sweep-interval": plan.sweep_s,
            "--concurrency": plan.concurrency,
            "--shutdown-grace": plan.grace_s,
            "--safety-poll": 1,
            "--log-format": "json",
            "--pooler": "transaction" if self.pooler is not None else "none",
        }
        launcher = [sys.executable, "-m", "tests.chaos.planted", plan.plant] if plan.plant else None
        return WatchedFleet(
            APP,
            self.network.dsn_of,
            plan.workers,
            ["--queue=default", "--queue=other", *(f"{name}={value}" for name, value in flags.items())],
            launcher,
            env={"CHAOS_LOG": str(self.folder / "workers.jsonl"), "CHAOS_LEASE": str(plan.lease_s)},
            folder=self.folder,
        )

    def run(self) -> Result:
        """Let work and faults meet for the time of the plan, then see how it all ends."""
        plan, fleet = self.plan, self.fleet
        keeper = threading.Thread(target=self._keep, name="keeper", daemon=True)
        keeper.start()
        self._stack.callback(keeper.join)
        self._stack.callback(self._keeping.set)
        work = workload.Workload(
            self.cluster.workers_dsn, self.folder / "producers.jsonl", plan.seed, mix=plan.mix, pause_s=plan.pause_s
        )
        with planted.in_producers(plan.plant), work:
            evil = self._strike(work)
            self.cluster.wait_ready()
            self._kill_some()
            self._stop_each(work)
            work.stop()
        history = History(periods=dict(chaos.PERIODS), grace_s=plan.grace_s, drain_s_max=plan.drain_s_max)
        history.drain_s = self._drain()
        self._keeping.set()
        keeper.join()
        # One that Python is still starting cannot have an ear for signals yet.
        wait_until(self._are_heard, SETTLED_S_MAX, 0.1, hint="a worker does not register")
        fleet.stop_all(plan.grace_s * 3 + 30)
        self._read(history, work)
        return Result(history, evil.counts, [*evil.failures, *work.stuck])

    def _strike(self, work: workload.Workload) -> nemesis.Nemesis:
        plan = self.plan
        target = Target(
            self.cluster, self.fleet, self.network, self.pooler, plan.lease_s, children="isolated" in plan.mix
        )
        rng = random.Random(f"{plan.seed}/nemesis")
        evil = nemesis.Nemesis(nemesis.faults(plan.faults, target), rng, self._note, pause_s=plan.pauses_s)
        self.fleet.calm = not plan.faults
        until = time.monotonic() + plan.duration_s
        with evil:
            while (left_s := until - time.monotonic()) > 0:
                said = ", ".join(f"{name} {count}" for name, count in sorted(evil.counts.items()))
                self._progress("faults", f"{left_s:.0f} s to go, {work.sent.get('ok', 0)} tasks; {said}")
                time.sleep(min(0.5, left_s))  # how long the faults last is part of the plan
        return evil

    def _note(self, name: str, what: Literal["begin", "end"]) -> None:
        """Note a fault that may concern every worker; those of single processes are noted by the fleet."""
        now = time.monotonic_ns()
        if what == "begin":
            self._began[name] = now
        elif FAULTS[name].lane != "workers" or name == "kill_child":
            self._deeds.append(Deed(name, self._began.pop(name), now))

    def _kill_some(self) -> None:
        """Kill a worker now and then, and nothing else, to see how long its tasks then wait."""
        if self.plan.kills:
            self._wait_caught_up()
        for number in range(self.plan.kills):
            self._progress("kills", f"{number} of {self.plan.kills}")
            index = number % self.fleet.count
            wait_until(lambda index=index: self._is_heard(index), SETTLED_S_MAX, 0.1, hint="a worker does not register")  # type: ignore[misc]  # a default binds the loop's variable
            time.sleep(UNDISTURBED_S)  # until nobody waits any more for what was before
            self.fleet.kill(index)
            self.fleet.replace_dead()

    def _wait_caught_up(self) -> None:
        """Wait until the faults' backlog is worked off, for a while: a killed task is not to wait for that."""
        until = time.monotonic() + CAUGHT_UP_S_MAX
        due = b"SELECT count(*) FROM pgtasks.tasks WHERE state = 'queued' AND run_at < clock_timestamp()"
        while time.monotonic() < until:
            with suppress(psycopg.Error), psycopg.connect(self.cluster.dsn, autocommit=True) as connection:
                (left,) = connection.execute(due).fetchone() or (0,)
                self._progress("kills", f"{left} tasks are due")
                if left < CAUGHT_UP:
                    return
            time.sleep(0.2)  # a moment before the next look

    def _stop_each(self, work: workload.Workload) -> None:
        """Stop the workers one after the other, under load, as a deployment does."""
        places = range(self.fleet.count)[: self.plan.stops]
        if not places:
            return
        self._progress("stops", f"{work.sent.get('ok', 0)} tasks")
        time.sleep(self.plan.lease_s + self.plan.sweep_s)  # what the faults cost is paid by then
        self.fleet.calm = True
        for index in places:
            wait_until(lambda index=index: self._is_heard(index), SETTLED_S_MAX, 0.1, hint="a worker does not register")  # type: ignore[misc]  # a default binds the loop's variable
            self.fleet.terminate(index)
            self.fleet.wait(index, self.plan.grace_s * 3 + 30)
            self.fleet.replace_dead()

    def _are_heard(self) -> bool:
        return all(self._is_heard(index) for index in range(self.fleet.count) if self.fleet.alive(index))

    def _is_heard(self, index: int) -> bool:
        """Tell whether the worker at a place has registered and was heard of a moment ago."""
        with suppress(psycopg.Error), psycopg.connect(self.cluster.dsn, autocommit=True) as connection:
            heard = {int(name.rpartition(":")[2]) for (name,) in connection.execute(_HEARD).fetchall()}
            return self.fleet.pid(index) in heard
        return False

    def _keep(self) -> None:
        """Replace workers that died of a poisonous task."""
        while not self._keeping.wait(KEEP_S):
            self.fleet.replace_dead()

    def _drain(self) -> float:
        """Let no schedule fire any more, and wait until all tasks have ended."""
        with psycopg.connect(self.cluster.dsn, autocommit=True) as connection:
            connection.execute("UPDATE pgtasks.schedules SET enabled = false")
        return workload.wait_drained(
            self.cluster.dsn, self.plan.drain_s_max, lambda left: self._progress("drain", f"{left} tasks left")
        )

    def _read(self, history: History, work: workload.Workload) -> None:
        self._progress("check", "reading what happened")
        history.sent = read_log(self.folder / "producers.jsonl", Sent)
        history.marks = read_log(self.folder / "workers.jsonl", Mark)
        history.cancels, history.sightings = work.cancels, work.sightings
        history.deeds = self._deeds + self.fleet.deeds
        history.refused = sum(map(_refused, (self.fleet.output(index) for index in range(self.fleet.count))))
        read_tables(history, self.cluster.dsn)


def make_schema(cluster: Cluster) -> None:
    """Make the schema anew, and with it empty."""
    with cluster.admin() as admin:
        admin.execute("DROP SCHEMA IF EXISTS pgtasks CASCADE")
    access.install(cluster.dsn)


def _refused(output: str) -> int:
    """Count the writes that a worker says were refused."""
    found = 0
    for line in output.splitlines():
        if REFUSED in line:
            with suppress(ValueError):
                found += int(json.loads(line).get("count", 0))
    return found


def run(
    plan: Plan, folder: Path, progress: Progress = lambda _step, _text: None, cluster: Cluster | None = None
) -> Result:
    """Make a run in a folder, which keeps its logs; on a fresh cluster, or in the emptied one that is given."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        return Stage(plan, folder, stack, progress, cluster).run()


def chosen_faults(names: str) -> list[str]:
    """Give the faults of a list with commas, of `default`, or of `all` that can strike on one machine at once.

    Raises ValueError for a name that is none.
    """
    match names:
        case "default":
            return list(nemesis.DEFAULT_FAULTS)
        case "none" | "":
            return []
        case "all":
            left_out = {POOLER} if os.geteuid() == 0 else {POOLER, "disk_full"}
            return [name for name in FAULTS if name not in left_out]
    chosen = [name.strip() for name in names.split(",")]
    for name in chosen:
        if name not in FAULTS:
            raise ValueError(f"there is no fault {name!r}; known are {', '.join(FAULTS)}, and default, all and none")
    if POOLER in chosen and any("standby" in FAULTS[name].needs for name in chosen):
        raise ValueError("a run with PgBouncer has no standby: it would not follow a failover")
    return chosen


def planted_plan(plan: Plan, name: str) -> Plan:
    """Give the plan with a bug, and with the work and the faults that show it."""
    bug = planted.PLANTS[name]
    return replace(
        plan,
        plant=name,
        faults=bug.faults,
        mix=dict(bug.mix),
        pause_s=bug.pause_s,
        pauses_s=(0.3, 0.8),
        drain_s_max=bug.drain_s_max,
        kills=0,
        stops=None if "I12" in bug.seen_by else 0,
    )
