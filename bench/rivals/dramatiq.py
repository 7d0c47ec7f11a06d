"""Dramatiq with Redis: threads in several processes, acknowledged when they are done."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar

from bench.rivals.redis import DURABILITY, RedisRival, ask
from bench.rivals.rival import Command

# Tried on two cores beside other load, against its default of 8 threads: 4 threads 0.7, 16 threads
# 1.8 and then 1.9 (CPU per task 0.8), 32 threads as 16, four processes 1.2 (CPU 1.2), a prefetch of
# 128 0.8.


class Dramatiq(RedisRival):
    """Fetches batches by a Lua script in each process, and acknowledges message by message."""

    name = "dramatiq"
    title = "Dramatiq"
    packages = ("dramatiq[redis]==2.2.1", "hiredis==3.5.0")
    settings = (
        "A process per core (its default) with 16 threads each (8 is its default), its default prefetch of twice the "
        "threads, its default middleware, no results, hiredis. It acknowledges when a task has ended. " + DURABILITY
    )
    sources = ("https://dramatiq.io/advanced.html", "https://dramatiq.io/guide.html")
    keeps = "Nothing: the message is deleted."
    options: ClassVar[Mapping[str, Any]] = {"processes": os.cpu_count(), "threads": 16, "prefetch": 0}

    def worker_argv(self) -> list[str]:
        """Give `dramatiq`."""
        argv = [str(self.folder / "bin" / "dramatiq"), self.module]
        return [*argv, "--processes", str(self.options["processes"]), "--threads", str(self.options["threads"])]

    def command(self, argv: list[str], dsn: str) -> Command:
        """Add the only setting that is not on the command line."""
        command = super().command(argv, dsn)
        return Command(command.argv, {**command.env, "dramatiq_queue_prefetch": str(self.options["prefetch"])})

    def unacknowledged(self, dsn: str) -> int:
        """Count the hash of messages, which an acknowledgement deletes from."""
        return int(ask(dsn, "HLEN", "dramatiq:default.msgs"))
