"""A handlers' loop that a handler blocks: who does it, and who must not pay for it.

A handler that calls ``time.sleep`` or computes on the loop keeps its neighbours from going on;
nobody can interrupt it. The rules:

1. Time in which another handler blocks the loop does not count against a neighbour's timeout,
   nor against the time in which it has to heed a stop.
2. The one that blocks the loop times out as any other. When it ignores that for as long as any
   handler may (``executor.ABANDON_S``), the loop is given up: the neighbours are released, no
   attempt charged, and the worker recycles itself (``recycling``). Should the loop go on after
   all, they are cancelled; what they return is dropped.

Who blocks the loop is known when the task that runs at the moment is a handler's, or one that a
handler started. Where it is not (a callback without a task, say), whoever had begun is taken for
a possible culprit: its timeout counts. What had not begun is a neighbour in any case.
"""

from __future__ import annotations

from typing import NamedTuple

from pgtasks import events
from pgtasks.engine.attempt import Attempt
from pgtasks.engine.reports import facts_of
from pgtasks.engine.runners import AsyncRunner

# A loop that does not answer for this long counts as blocked; and for this long, it is said.
BLOCKED_S, SLOW_LOOP_S = 0.3, 1.0


class Blockage(NamedTuple):
    """A loop that is blocked at this moment."""

    runner: AsyncRunner
    seconds: float
    unexcused_s: float
    culprit: Attempt | None

    def is_victim(self, attempt: Attempt) -> bool:
        """Tell whether it is no fault of this attempt that it does not go on."""
        if attempt.runner is not self.runner or attempt is self.culprit:
            return False
        return self.culprit is not None or not attempt.begun


class LoopWatch:
    """Notices blockages; one look in each round of the watchdog."""

    def __init__(self) -> None:
        self._excused_until_s = 0.0
        self._said = False

    def look(self, runner: AsyncRunner) -> Blockage | None:
        """Ask the loop; gives the blockage if there is one, and names the culprit in an event, once."""
        blocked_s = runner.blocked_for_s()
        if blocked_s < BLOCKED_S:
            self._excused_until_s, self._said = 0.0, False
            return None
        found = Blockage(runner, blocked_s, blocked_s - self._excused_until_s, runner.blocking())
        self._excused_until_s = blocked_s
        if blocked_s >= SLOW_LOOP_S and not self._said:
            self._said = True
            events.warning(
                "handlers' loop is blocked",
                **(facts_of(found.culprit) if found.culprit else {}),
                blocked_s=round(blocked_s, 1),
                advice="an async handler must await; run blocking code in a def handler",
            )
        return found
