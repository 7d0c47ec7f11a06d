"""The app that `pgtasks worker` runs: one task, which reports when it started and when it had done its work.

Reports go to the adapter through an inherited pipe, ten times a second, so that a handler costs an append.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time

from pgtasks import App

QUEUE = "long_horizon_bench"
PIPE = "PGTASKS_BENCH_PIPE"
FLUSH_S = 0.1
WORK_S = int(os.environ.get("JOB_WORK_MS", "1")) / 1000

app = App()
reports: list[tuple[float, float]] = []


@app.task(queue=QUEUE)
async def job(sequence: int, enqueued_at: float, padding: str) -> None:  # noqa: ARG001 - what a job carries
    """Work for as long as the harness says."""
    started_at = time.time()
    if WORK_S:
        await asyncio.sleep(WORK_S)
    reports.append((started_at - enqueued_at, time.time() - enqueued_at))


def send(pipe: int) -> None:
    """Pass on what the handlers reported, one JSON array a line, until the adapter is gone."""
    while True:
        time.sleep(FLUSH_S)
        count = len(reports)
        if count:
            line = json.dumps([[round(each * 1000, 3) for each in report] for report in reports[:count]])
            del reports[:count]
            try:
                write_all(pipe, line.encode() + b"\n")
            except OSError:
                return


def write_all(pipe: int, data: bytes) -> None:
    """Write to a pipe, which takes less than a line at a time when it is full."""
    while data:
        data = data[os.write(pipe, data) :]


if PIPE in os.environ:
    threading.Thread(target=send, args=(int(os.environ[PIPE]),), name="reports", daemon=True).start()
