"""Other task queues, measured on the same server in the same run: `RIVALS` has each by its name.

A rival's module says what was configured for speed and who says so; its script in `scripts/` runs
in the rival's own environment and prints JSON lines.
"""

from __future__ import annotations

from bench.rivals.pgqueuer import Pgqueuer
from bench.rivals.rival import Rival

RIVALS: dict[str, Rival] = {rival.name: rival for rival in (Pgqueuer(),)}
