"""Celery's application: the module that its worker loads, and what fills its queue."""

from __future__ import annotations

import base64
import json
import os
import sys
import time
import uuid
from collections.abc import Iterator

import redis
from celery import Celery

PATH, OPTIONS = os.environ["BENCH_SOCKET"], json.loads(os.environ["BENCH_OPTIONS"])
QUEUE, AT_ONCE = "celery", 1_000

app = Celery("bench", broker=f"redis+socket://{PATH}")
app.conf.update(worker_redirect_stdouts=False, **OPTIONS["conf"])
ran: list[bool] = []


@app.task(name="noop")
def noop() -> None:
    """Say that this process has run the first one; nothing else."""
    if not ran:
        ran.append(True)
        # Past what the worker puts in the place of sys.stdout.
        os.write(1, json.dumps({"event": "first", "at": time.time()}).encode() + b"\n")


def messages(client: redis.Redis, tasks: int) -> Iterator[str]:
    """Give messages like the one that the API makes, each with its own ids."""
    noop.delay()
    message = json.loads(client.lpop(QUEUE))
    assert json.loads(base64.b64decode(message["body"]))[0] == []
    for _ in range(tasks):
        task_id = str(uuid.uuid4())
        message["headers"] |= {"id": task_id, "root_id": task_id}
        message["properties"] |= {"correlation_id": task_id, "delivery_tag": str(uuid.uuid4())}
        yield json.dumps(message)


def fill(tasks: int) -> None:
    """Push so many messages."""
    client = redis.Redis(unix_socket_path=PATH)
    batch: list[str] = []
    for message in messages(client, tasks):
        batch.append(message)
        if len(batch) == AT_ONCE:
            client.lpush(QUEUE, *batch)
            batch.clear()
    if batch:
        client.lpush(QUEUE, *batch)


if __name__ == "__main__":
    fill(int(sys.argv[2]))
