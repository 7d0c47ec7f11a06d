"""Everything that can be measured, by the name typed after `./dev bench`."""

from __future__ import annotations

from bench.scenario import Scenario
from bench.scenarios import (
    backlog,
    contention,
    delayed,
    drain,
    enqueue,
    features,
    field,
    handlers,
    held,
    horizon,
    latency,
    retries,
    soak,
)

_MODULES = (
    drain,
    field,
    enqueue,
    latency,
    handlers,
    backlog,
    horizon,
    held,
    contention,
    retries,
    delayed,
    soak,
    features,
)
SCENARIOS: dict[str, Scenario] = {module.SCENARIO.name: module.SCENARIO for module in _MODULES}
