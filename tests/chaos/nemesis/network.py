"""Faults of the way between one worker and the server."""

from random import Random

from tests.chaos.nemesis.fault import Fault, Missed
from tests.database import wait_until
from tests.proxy import Proxy

_PARTS = ("claim", "finish", "heartbeat")


class _NetworkFault(Fault):
    lane = "network"
    needs = ("proxy",)
    # How long to wait for a connection that says something.
    patience_s = 5.0
    _struck: list[Proxy] | None = None

    def choose(self, rng: Random) -> list[Proxy]:
        """Choose the worker whose way is struck, and give its proxies."""
        assert self.target.network is not None, self.target.missing(self.needs)
        self._struck = rng.choice(self.target.network.proxies)
        return self._struck

    def wait_for(self, count: str, before: int) -> None:
        """Wait until the proxies' counter is above what it was; `Missed` if nothing passes there."""
        try:
            wait_until(lambda: _total(self._struck or [], count) > before, self.patience_s)
        except AssertionError:
            raise Missed("nothing passed there") from None

    def undo(self) -> None:
        """Let everything pass, at once and whole; what was swallowed ends."""
        struck, self._struck = self._struck, None
        for proxy in struck or []:
            proxy.delay_s = 0.0
            proxy.keep_replies()
            proxy.heal()


class BlackHole(_NetworkFault):
    """Packets of one worker vanish in both directions, for longer than its lease."""

    name = "black_hole"

    def strike(self, rng: Random) -> None:
        """Swallow everything, also of new connections, for 1.2 to 2.5 leases."""
        try:
            for proxy in self.choose(rng):
                proxy.black_hole()
            self.last(1.2, 2.5, rng)
        finally:
            self.undo()


class Reset(_NetworkFault):
    """All connections of one worker are reset (RST)."""

    name = "reset"

    def strike(self, rng: Random) -> None:
        """Reset them once."""
        for proxy in self.choose(rng):
            proxy.reset()
        self.undo()


class Delay(_NetworkFault):
    """Replies to one worker come late, by up to half a lease."""

    name = "delay"

    def strike(self, rng: Random) -> None:
        """Delay every reply for one to two leases."""
        try:
            late_s = self.target.lease_s * rng.uniform(0.02, 0.5)
            for proxy in self.choose(rng):
                proxy.delay_s = late_s
            self.last(1.0, 2.0, rng)
        finally:
            self.undo()


class CutAfter(_NetworkFault):
    """Connections of one worker end after so many bytes, most often in the middle of a reply."""

    name = "cut_after"

    def strike(self, rng: Random) -> None:
        """Cut each connection after up to 2,000 bytes of replies."""
        try:
            proxies = self.choose(rng)
            before = _total(proxies, "cuts")
            for proxy in proxies:
                proxy.cut_after(rng.randint(1, 2000))
            self.wait_for("cuts", before)
        finally:
            self.undo()


class LostReply(_NetworkFault):
    """A statement in autocommit mode is committed, and the worker never hears of it."""

    name = "lost_reply"

    def strike(self, rng: Random) -> None:
        """Lose the reply to the next claim, outcome or heartbeat."""
        try:
            proxies = self.choose(rng)
            before = _total(proxies, "lost_replies")
            part = rng.choice(_PARTS)
            for proxy in proxies:
                proxy.lose_reply(part)
            self.wait_for("lost_replies", before)
        finally:
            self.undo()


class LostCommit(_NetworkFault):
    """The COMMIT of a transaction of several statements is done, and the worker never hears of it.

    A worker's writes are single statements, for which `LostReply` is the same; where it has no transactions, this
    misses.
    """

    name = "lost_commit"
    patience_s = 1.0

    def strike(self, rng: Random) -> None:
        """Lose the reply to the next COMMIT of any connection of a worker."""
        try:
            proxies = self.choose(rng)
            before = _total(proxies, "lost_replies")
            for proxy in proxies:
                proxy.lose_commit()
            self.wait_for("lost_replies", before)
        finally:
            self.undo()


def _total(proxies: list[Proxy], count: str) -> int:
    return sum(getattr(proxy, count) for proxy in proxies)
