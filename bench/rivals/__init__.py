"""Other task queues, measured on the same server in the same run: `RIVALS` has each by its name.

A rival's module says what was configured for speed and who says so; its script in `scripts/` runs
in the rival's own environment and prints JSON lines.
"""

from __future__ import annotations

from bench.rivals.awa import Awa
from bench.rivals.celery import Celery
from bench.rivals.chancy import Chancy
from bench.rivals.dramatiq import Dramatiq
from bench.rivals.graphile import Graphile, GraphileAsDocumented
from bench.rivals.oban import Oban
from bench.rivals.pgboss import Pgboss
from bench.rivals.pgqueuer import Pgqueuer
from bench.rivals.procrastinate import Procrastinate
from bench.rivals.rival import Rival

_ALL: tuple[Rival, ...] = (
    Graphile(),
    GraphileAsDocumented(),
    Pgboss(),
    Pgqueuer(),
    Procrastinate(),
    Oban(),
    Chancy(),
    Awa(),
    Celery(),
    Dramatiq(),
)
RIVALS: dict[str, Rival] = {rival.name: rival for rival in _ALL}
