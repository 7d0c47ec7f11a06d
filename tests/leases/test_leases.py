"""A worker's books about its leases: what may be trusted, what is in doubt, what may be deleted."""

import time

import pytest

from pgtasks.engine.leases import Leases

LEASE_S = 30.0
MARGIN_S = 2.0


@pytest.fixture
def now() -> float:
    """The present moment, on the clock that the books use."""
    return time.monotonic()


def test_a_lease_is_trusted_from_the_moment_its_request_was_sent(now: float) -> None:
    """The margin before its end leaves handlers the time to stop."""
    leases = Leases(LEASE_S)
    leases.add(1, 2, now)
    assert leases.untrusted(now + LEASE_S - MARGIN_S - 0.1) == (set(), set())
    assert leases.untrusted(now + LEASE_S - MARGIN_S).let_go == {1}


def test_a_heartbeat_extends_the_trust(now: float) -> None:
    """An answer that overtook a later one shortens nothing."""
    leases = Leases(LEASE_S)
    leases.add(1, 1, now)
    assert leases.renewed([1], [1], now + 20) == set()
    assert leases.renewed([1], [1], now + 10) == set()
    assert leases.untrusted(now + 20 + LEASE_S - MARGIN_S - 0.1) == (set(), set())


def test_a_lease_that_the_database_does_not_name_is_gone(now: float) -> None:
    """One that ended meanwhile in the ordinary way is not."""
    leases = Leases(LEASE_S)
    leases.add(1, 1, now)
    leases.add(2, 1, now)
    leases.close_tasks([2])
    assert leases.renewed([1, 2], [], now) == {1}


def test_a_database_that_does_not_answer_puts_leases_in_doubt(now: float) -> None:
    """The heartbeat has been asking in time: the leases stay on the books and are asked for."""
    leases = Leases(LEASE_S)
    leases.add(1, 1, now)
    leases.asked(now + 10)
    leases.asked(now + 20)
    assert leases.untrusted(now + LEASE_S).in_doubt == {1}
    assert leases.ids() == [1]
    assert leases.renewed([1], [1], now + 40) == set()
    assert leases.untrusted(now + 41) == (set(), set())


def test_heartbeats_without_an_answer_end_claiming_until_one_comes(now: float) -> None:
    """What is claimed while nothing can be renewed would only be given back."""
    leases = Leases(LEASE_S)
    assert not leases.unanswered()
    leases.asked(now - LEASE_S / 2 + 1)
    assert not leases.unanswered()
    leases.renewed([], [], now)
    leases.asked(now - LEASE_S / 2 - 1)
    assert leases.unanswered()
    leases.renewed([], [], now)
    assert not leases.unanswered()


def test_a_process_that_stood_still_lets_its_leases_go(now: float) -> None:
    """Nobody asked in time: the lease is renewed no more, and only the sweep ends its tasks."""
    leases = Leases(LEASE_S)
    leases.add(1, 2, now)
    leases.asked(now + 100)
    assert leases.untrusted(now + 100).let_go == {1}
    assert leases.ids() == []
    assert leases.renewed([1], [1], now + 100) == set()
    assert leases.untrusted(now + 101).let_go == {1}
    assert leases.emptied_by([1, 1]) == []


def test_a_locked_lease_is_neither_renewed_nor_gone(now: float) -> None:
    """It ends in doubt, as nobody here is to blame, and may come back."""
    leases = Leases(LEASE_S)
    leases.add(1, 1, now)
    assert leases.renewed([1, 2], [], now + 10, locked=[1]) == set()
    assert leases.untrusted(now + LEASE_S) == ({1}, set())
    leases.renewed([1], [1], now + LEASE_S)
    assert leases.untrusted(now + LEASE_S) == (set(), set())


def test_a_claim_that_was_answered_too_late_is_in_doubt(now: float) -> None:
    """The database was slow to grant it; when it did so nobody can tell from here."""
    leases = Leases(LEASE_S)
    leases.add(1, 1, now - LEASE_S)
    assert leases.untrusted(now).in_doubt == {1}
    leases.renewed([1], [1], now)
    assert leases.untrusted(now) == (set(), set())


def test_a_lease_may_be_deleted_with_its_last_task(now: float) -> None:
    """Counted by tasks, each once."""
    leases = Leases(LEASE_S)
    leases.add(1, 3, now)
    leases.add(2, 1, now)
    assert leases.emptied_by([1, 1, 2]) == [2]
    leases.close_tasks([1, 1, 2])
    assert leases.ids() == [1]
    assert leases.emptied_by([1]) == [1]
    leases.close_tasks([1])
    assert len(leases) == 0


def test_a_lease_with_a_task_left_behind_is_never_deleted(now: float) -> None:
    """Its row is what leads the sweep to that task."""
    leases = Leases(LEASE_S)
    leases.add(1, 2, now)
    leases.leave_to_sweep(1)
    assert leases.ids() == [1]
    assert leases.emptied_by([1]) == []
    leases.close_tasks([1])
    assert leases.ids() == []


@pytest.mark.parametrize(("lease_s", "margin_s"), [(1.0, 0.3), (3.0, 0.3), (10.0, 1.0), (30.0, 2.0), (3600.0, 2.0)])
def test_the_margin_fits_the_lease(lease_s: float, margin_s: float) -> None:
    """It covers a few rounds of the watchdog and leaves time for a second heartbeat."""
    assert Leases(lease_s).margin_s == margin_s
    assert lease_s / 3 + margin_s < lease_s
