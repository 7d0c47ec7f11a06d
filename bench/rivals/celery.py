"""Celery with Redis: what most people use in Python."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar

from bench.rivals.redis import DURABILITY, RedisRival, ask

# Tried on two cores beside other load: a multiplier of 16 instead of 128 0.9; the pools solo and
# threads need 0.7 of the CPU per task (there are no pipes between processes), at rates that cannot be
# told apart from prefork's: the main process takes and acknowledges each message by itself, in three
# writes that each wait for the disk. With appendfsync everysec, which may lose a second of tasks, 3.


class Celery(RedisRival):
    """Prefetches messages in its main process, and hands them to children over pipes."""

    name = "celery"
    title = "Celery"
    packages = ("celery[redis]==5.7.0", "hiredis==3.5.0")
    settings = (
        "One worker of the prefork pool with a child per core, worker_prefetch_multiplier 128 (its guide: 64 or 128 "
        "for many short tasks), acks_late for the guarantee that we give (at least once), no results, no rate limits, "
        "no events, gossip, mingle and heartbeat off, hiredis. " + DURABILITY
    )
    sources = (
        "https://docs.celeryq.dev/en/stable/userguide/optimizing.html",
        "https://docs.celeryq.dev/en/stable/userguide/configuration.html",
    )
    keeps = "Nothing: the message is deleted, and there is no result backend."
    options: ClassVar[Mapping[str, Any]] = {
        "conf": {
            "worker_prefetch_multiplier": 128,
            "task_acks_late": True,
            "task_ignore_result": True,
            "worker_disable_rate_limits": True,
        },
        "worker": ["--pool=prefork", f"--concurrency={os.cpu_count()}"],
    }

    def worker_argv(self) -> list[str]:
        """Give `celery worker`, without what only many workers together need."""
        celery = str(self.folder / "bin" / "celery")
        alone = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        return [celery, "-A", self.module, "worker", "--loglevel=WARNING", *alone, *self.options["worker"]]

    def unacknowledged(self, dsn: str) -> int:
        """Count the list of what waits, and the hash of what is out with a worker."""
        return int(ask(dsn, "LLEN", "celery")) + int(ask(dsn, "HLEN", "unacked"))
