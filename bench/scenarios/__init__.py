"""Everything that can be measured, by the name typed after `./dev bench`."""

from __future__ import annotations

from bench.scenario import Scenario
from bench.scenarios import contention, drain, enqueue, held, horizon, retries

_MODULES = (
    drain,
    enqueue,
    horizon,
    held,
    contention,
    retries,
)
SCENARIOS: dict[str, Scenario] = {module.SCENARIO.name: module.SCENARIO for module in _MODULES}
