"""Alive or not, ready or not: decisions about a worker's signs of life, no effects.

Alive means that restarting would not help. A worker that drains claims nothing more and is
alive until it ends, for which it has its grace time and a minute. A database that is away makes
a worker not alive after a lease: then its tasks are no longer its own. So whoever restarts on
that should allow for some failures.

A worker that hangs is not alive either, but one that only waits for its database does not hang:
its claims and heartbeats are tried and refused, again and again. Killing it would bring nothing
back, so a watchdog, which kills without asking anybody, is told of hangs alone.
"""

from __future__ import annotations

from pgtasks.engine.vitals import Signs

# How long the claim loop may make no progress, at least; one statement may take 12 of these seconds.
STILL_S_MIN = 15.0
SAFETY_POLLS = 3
# Beats are sent again long before the lease ends; this many intervals after the last one something is wrong.
BEATS_MISSED = 2
BEAT_SLACK_S = 1.0


def progress_bound_s(safety_poll_s: float) -> float:
    """Give the seconds that the claim loop may make no progress."""
    return max(SAFETY_POLLS * safety_poll_s, STILL_S_MIN)


def not_live(signs: Signs | None) -> list[str]:
    """Give the reasons why a worker is not alive; none while it starts (None)."""
    if signs is None:
        return []
    reasons = _still(signs, signs.since_progress_s)
    if signs.since_beat_s > signs.lease_s:
        reasons.append(f"no heartbeat succeeded for {signs.since_beat_s:.0f} s (lease {signs.lease_s:g} s)")
    return reasons + _late(signs)


def hangs(signs: Signs | None) -> list[str]:
    """Give the reasons why a worker hangs; none while it starts, or is refused by its database and tries again."""
    if signs is None:
        return []
    reasons = _still(signs, min(signs.since_progress_s, signs.since_claim_refused_s))
    silent_s, bound_s = min(signs.since_beat_s, signs.since_beat_refused_s), max(signs.lease_s, STILL_S_MIN)
    if silent_s > bound_s:
        reasons.append(f"no heartbeat was tried for {silent_s:.0f} s (bound {bound_s:g} s)")
    return reasons + _late(signs)


def _still(signs: Signs, still_s: float) -> list[str]:
    bound_s = progress_bound_s(signs.safety_poll_s)
    if signs.stopping or still_s <= bound_s:
        return []
    return [f"the claim loop made no progress for {still_s:.0f} s (bound {bound_s:g} s)"]


def _late(signs: Signs) -> list[str]:
    # Without a database one that recycles itself waits, for as long as that takes.
    if signs.late_s <= 0 or signs.since_beat_s > _beat_bound_s(signs):
        return []
    return [f"it should have ended {signs.late_s:.0f} s ago"]


def _beat_bound_s(signs: Signs) -> float:
    return BEATS_MISSED * signs.beat_interval_s + BEAT_SLACK_S


def not_ready(signs: Signs | None, schema_problem: str | None = None) -> list[str]:
    """Give the reasons why a worker is not ready for work."""
    if signs is None:
        return ["the worker is starting"]
    reasons = not_live(signs)
    if signs.stopping:
        reasons.append("the worker is draining")
    if not signs.beats:
        reasons.append("no heartbeat succeeded yet")
    elif _beat_bound_s(signs) < signs.since_beat_s <= signs.lease_s:
        reasons.append(f"the database took no heartbeat for {signs.since_beat_s:.0f} s")
    if schema_problem is not None:
        reasons.append(schema_problem)
    return reasons
