"""Dramatiq's actor: the module that its worker loads, and what fills its queue."""

from __future__ import annotations

import json
import os
import sys
import time
import uuid

import dramatiq
import redis
from dramatiq.brokers.redis import RedisBroker

PATH = os.environ["BENCH_SOCKET"]
AT_ONCE = 1_000

broker = RedisBroker(url=f"unix://{PATH}")
dramatiq.set_broker(broker)
ran: list[bool] = []


@dramatiq.actor
def noop() -> None:
    """Say that this process has run the first one; nothing else."""
    if not ran:
        ran.append(True)
        # Past what the worker puts in the place of sys.stdout.
        os.write(1, json.dumps({"event": "first", "at": time.time()}).encode() + b"\n")


def fill(tasks: int) -> None:
    """Push what `send` pushes, in fewer round trips."""
    key = f"{broker.namespace}:{noop.queue_name}"
    with redis.Redis(unix_socket_path=PATH).pipeline(transaction=False) as pipeline:
        for number in range(tasks):
            message = noop.message()
            message = message.copy(options={"redis_message_id": str(uuid.uuid4())})
            pipeline.hset(f"{key}.msgs", message.options["redis_message_id"], message.encode())
            pipeline.rpush(key, message.options["redis_message_id"])
            if number % AT_ONCE == 0:
                pipeline.execute()
        pipeline.execute()


if __name__ == "__main__":
    fill(int(sys.argv[2]))
