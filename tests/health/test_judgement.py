"""What makes a worker dead, or not ready: decisions about its signs of life."""

from typing import Any

import pytest

from pgtasks.engine.vitals import Signs
from pgtasks.health.judgement import hangs, not_live, not_ready

WELL = Signs(
    since_progress_s=0.1,
    since_beat_s=9.0,
    beats=3,
    stopping=False,
    lease_s=30.0,
    beat_interval_s=10.0,
    safety_poll_s=5.0,
)


def test_a_worker_that_is_well_is_alive_and_ready() -> None:
    """Also when an idle one has slept for two safety polls, and when a beat was late."""
    for signs in (WELL, WELL._replace(since_progress_s=10.0), WELL._replace(since_beat_s=20.0)):
        assert not_live(signs) == not_ready(signs) == []


def test_a_worker_that_starts_is_alive_and_not_ready() -> None:
    """Its start has limits of its own."""
    assert not_live(None) == []
    assert not_ready(None) == ["the worker is starting"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"since_progress_s": 15.5}, "the claim loop made no progress for 16 s (bound 15 s)"),
        ({"since_progress_s": 61.0, "safety_poll_s": 20.0}, "the claim loop made no progress for 61 s (bound 60 s)"),
        ({"since_beat_s": 31.0}, "no heartbeat succeeded for 31 s (lease 30 s)"),
        ({"since_beat_s": 31.0, "stopping": True}, "no heartbeat succeeded for 31 s (lease 30 s)"),
        ({"since_beat_s": 31.0, "stopping": True, "late_s": 5.0}, "no heartbeat succeeded for 31 s (lease 30 s)"),
        ({"stopping": True, "late_s": 5.0}, "it should have ended 5 s ago"),
    ],
)
def test_what_makes_it_dead(changes: dict[str, Any], reason: str) -> None:
    """Each with its reason; what is dead is not ready either."""
    signs = WELL._replace(**changes)
    assert not_live(signs) == [reason]
    assert reason in not_ready(signs)


def test_a_worker_that_is_refused_by_its_database_does_not_hang() -> None:
    """However long that lasts, it is not alive meanwhile; a restart would not help."""
    away = WELL._replace(
        since_progress_s=300.0, since_beat_s=300.0, since_claim_refused_s=12.0, since_beat_refused_s=4.0
    )
    assert len(not_live(away)) == 2
    assert hangs(away) == []
    assert hangs(away._replace(stopping=True, late_s=5.0)) == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"since_progress_s": 16.0}, "the claim loop made no progress for 16 s (bound 15 s)"),
        (
            {"since_progress_s": 300.0, "since_claim_refused_s": 60.0},
            "the claim loop made no progress for 60 s (bound 15 s)",
        ),
        ({"since_beat_s": 300.0, "since_beat_refused_s": 40.0}, "no heartbeat was tried for 40 s (bound 30 s)"),
        ({"stopping": True, "late_s": 5.0}, "it should have ended 5 s ago"),
    ],
)
def test_what_is_a_hang(changes: dict[str, Any], reason: str) -> None:
    """Also when the database refused something before."""
    assert hangs(None) == hangs(WELL) == []
    assert hangs(WELL._replace(**changes)) == [reason]


def test_a_long_safety_poll_has_a_longer_bound() -> None:
    """An idle worker shows itself once in each."""
    assert not_live(WELL._replace(since_progress_s=59.0, safety_poll_s=20.0)) == []


def test_a_draining_worker_is_alive_although_it_claims_nothing() -> None:
    """Or it would be killed in its grace time."""
    signs = WELL._replace(stopping=True, since_progress_s=1000.0, late_s=-5.0)
    assert not_live(signs) == []
    assert not_ready(signs) == ["the worker is draining"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"beats": 0}, "no heartbeat succeeded yet"),
        ({"since_beat_s": 22.0}, "the database took no heartbeat for 22 s"),
    ],
)
def test_what_makes_it_not_ready(changes: dict[str, Any], reason: str) -> None:
    """It is alive all the same."""
    signs = WELL._replace(**changes)
    assert not_live(signs) == []
    assert not_ready(signs) == [reason]


def test_a_wrong_schema_makes_it_not_ready() -> None:
    """Somebody dropped it, or restored an older one."""
    assert not_ready(WELL, "schema: gone") == ["schema: gone"]
