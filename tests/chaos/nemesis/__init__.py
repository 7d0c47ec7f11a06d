"""Faults by name, and the nemesis that lets them strike.

target = Target(cluster, fleet, network=network)
with Nemesis(faults(DEFAULT_FAULTS, target), random.Random(seed), note) as nemesis:
    ...
assert not nemesis.failures
"""

from tests.chaos.nemesis.catalogue import DEFAULT_FAULTS, FAULTS, faults, missing
from tests.chaos.nemesis.fault import Fault, Lane, Missed, Need, Target
from tests.chaos.nemesis.nemesis import Nemesis, Note

__all__ = [
    "DEFAULT_FAULTS",
    "FAULTS",
    "Fault",
    "Lane",
    "Missed",
    "Need",
    "Nemesis",
    "Note",
    "Target",
    "faults",
    "missing",
]
