"""A producer of mixed tasks at a steady rate: `python -m bench.steady TASKS SECONDS FILE`.

It is an open loop: each batch has its moment, and when the database keeps one waiting, those that
follow are not put off, but come as soon as they can. At the end it writes what it enqueued into the file.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path

from bench.apps.mixed import app, doomed, flaky, noop
from pgtasks.model import NewTask

BATCHES_PER_S = 50
# Of each hundred tasks: so many are due later, fail once, or fail until they are dead letters.
DELAYED, FLAKY, DOOMED = 4, 5, 1
DELAYS_S = 5


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


def run(tasks: int, seconds: float) -> dict[str, float]:
    """Enqueue them; gives how many of each kind, and how far behind its moment a batch was at worst."""
    batches = max(1, round(seconds * BATCHES_PER_S))
    counts: Counter[str] = Counter()
    late_s, began = 0.0, time.monotonic()
    for number in range(batches):
        moment = began + number * seconds / batches
        time.sleep(max(0.0, moment - time.monotonic()))
        late_s = max(late_s, time.monotonic() - moment)
        made = [task(one) for one in range(tasks * number // batches, tasks * (number + 1) // batches)]
        counts.update(kind for kind, _ in made)
        app.enqueue_many([new for _, new in made])
    app.close()
    return {**dict(counts), "late_s_max": round(late_s, 3)}


if __name__ == "__main__":
    Path(sys.argv[3]).write_text(json.dumps(run(int(sys.argv[1]), float(sys.argv[2]))), encoding="utf-8")
