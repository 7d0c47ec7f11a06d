"""When a worker recycles itself, and when it does not."""

import signal
import threading
from collections.abc import Iterator

import pytest

from pgtasks import App
from pgtasks.engine import executor as executor_module
from pgtasks.engine import recycling as recycling_module
from pgtasks.engine.departure import StopSwitch
from pgtasks.engine.recycling import Recycling
from pgtasks.errors import ConfigError
from pgtasks.settings import QueueSlots, WorkerSettings, worker_settings
from tests.stuck.rig import Rig


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    """Return an app with a handler that is stuck at once, until the test ends."""
    monkeypatch.setattr(executor_module, "ABANDON_S", 0.0)
    monkeypatch.setattr(recycling_module, "RECYCLE_S_LEAST", 0.0)
    release, app = threading.Event(), App("postgresql://nowhere")

    @app.task(timeout=0.01)
    def stuck() -> None:
        release.wait()

    yield app
    release.set()


async def decision(rig: Rig, count: int, stuck_max: int) -> bool:
    """Let some handlers get stuck and tell whether the worker then recycles itself."""
    switch = StopSwitch()
    recycling = Recycling(rig.executor, switch, stuck_max)
    await rig.until(lambda: rig.executor.stuck == count)
    await recycling.watch()
    assert switch.recycles is switch.asked.is_set()
    rig.executor.close()
    return switch.recycles


@pytest.mark.parametrize(
    ("count", "stuck_max", "recycles"), [(1, 2, False), (2, 2, True), (3, 2, True), (4, 0, False), (1, 1, True)]
)
async def test_as_many_as_the_setting_says(app: App, count: int, stuck_max: int, *, recycles: bool) -> None:
    """Not with fewer, and never with 0."""
    rig = Rig(app)
    rig.start(*["stuck"] * count)
    assert await decision(rig, count, stuck_max) is recycles


@pytest.mark.parametrize(("slots", "recycles"), [(2, True), (3, False)])
async def test_all_slots_of_one_queue(app: App, slots: int, *, recycles: bool) -> None:
    """Nothing of that queue would run any more."""
    rig = Rig(app, 100, (QueueSlots("mail", slots), QueueSlots("default")))
    rig.start("stuck", "stuck", queue="mail")
    rig.start("stuck")
    assert await decision(rig, 3, 50) is recycles


async def test_not_twice_in_ten_seconds(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker lives that long at least."""
    monkeypatch.setattr(recycling_module, "RECYCLE_S_LEAST", 10.0)
    rig = Rig(app)
    rig.start("stuck")
    assert not await decision(rig, 1, 1)


async def test_a_signal_makes_an_ordinary_stop_of_it() -> None:
    """Whenever it comes."""
    switch = StopSwitch()
    switch.recycle(not_before=0.0)
    states = [(switch.recycles, switch.interrupted)]
    switch.on_signal(signal.SIGTERM)
    states.append((switch.recycles, switch.interrupted))
    assert states == [(True, False), (False, False)]


@pytest.mark.parametrize(("concurrency", "limit"), [(1, 1), (2, 1), (3, 2), (100, 50)])
def test_half_of_the_concurrency_by_default(concurrency: int, limit: int) -> None:
    """At least one."""
    assert WorkerSettings(concurrency=concurrency).stuck_limit == limit
    assert worker_settings({"concurrency": concurrency}, {"PGTASKS_STUCK_MAX": "0"}).stuck_limit == 0
    with pytest.raises(ConfigError, match="PGTASKS_STUCK_MAX='many' must be a whole number"):
        worker_settings({}, {"PGTASKS_STUCK_MAX": "many"})
    with pytest.raises(ConfigError, match="--stuck-max must be between 0"):
        WorkerSettings(stuck_max=-1)
