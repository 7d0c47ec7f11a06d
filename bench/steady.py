"""A producer of mixed tasks at a steady rate: `python -m bench.steady TASKS SECONDS FILE`.

It is an open loop: each batch has its moment, and when the database keeps one waiting, those that
follow are not put off, but come as soon as they can. At the end it writes what it enqueued into the file,
and when: the tasks themselves are due when they are inserted, because a worker's cursor may have passed
a moment that lies before.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from bench.apps.mixed import app, doomed, flaky, noop
from pgtasks.model import NewTask

BATCHES_PER_S = 50
# Of each hundred tasks: so many are due later, fail once, or fail until they are dead letters.
DELAYED, FLAKY, DOOMED = 4, 5, 1
DELAYS_S = 5


class Sent(NamedTuple):
    """How many tasks of each kind there were; of each batch, its planned moment and that of the call (since 1970)."""

    counts: dict[str, int]
    planned_s: list[float]
    called_s: list[float]

    @property
    def late_s(self) -> list[float]:
        """How far behind its plan each batch was."""
        return [called_s - planned_s for planned_s, called_s in zip(self.planned_s, self.called_s, strict=True)]


def task(number: int) -> tuple[str, NewTask]:
    """Give the kind of the task of this number, and the task."""
    place = number % 100
    if place < DELAYED:
        return "delayed", noop.using(delay=1 + number // 100 % DELAYS_S).prepare()
    if place < DELAYED + FLAKY:
        return "flaky", flaky.prepare()
    if place < DELAYED + FLAKY + DOOMED:
        return "doomed", doomed.prepare()
    return "steady", noop.prepare()


def run(tasks: int, seconds: float) -> Sent:
    """Enqueue them."""
    batches = max(1, round(seconds * BATCHES_PER_S))
    counts: Counter[str] = Counter()
    sent, began = Sent(counts, [], []), time.monotonic()
    for number in range(batches):
        moment = began + number * seconds / batches
        time.sleep(max(0.0, moment - time.monotonic()))
        called_s = time.time()
        sent.called_s.append(called_s)
        # The plan keeps to a clock that nobody sets, and is written down by the one that the database has.
        sent.planned_s.append(called_s - (time.monotonic() - moment))
        made = [task(one) for one in range(tasks * number // batches, tasks * (number + 1) // batches)]
        counts.update(kind for kind, _ in made)
        app.enqueue_many([new for _, new in made])
    app.close()
    return sent


def read(path: Path) -> Sent:
    """Read what it wrote."""
    return Sent(**json.loads(path.read_text(encoding="utf-8")))


if __name__ == "__main__":
    found = run(int(sys.argv[1]), float(sys.argv[2]))
    Path(sys.argv[3]).write_text(json.dumps(found._asdict()), encoding="utf-8")
