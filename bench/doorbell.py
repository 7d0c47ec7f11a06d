"""`python -m bench.doorbell DSN FILE`: the floor of pick-up latency, bare LISTEN/NOTIFY and one claim.

One connection, one thread, no handlers: it waits on the socket, and when a notification comes it
claims once and notes the time; then it completes what it claimed. The statements, the table and
the connection's settings are a worker's. It keeps the queue's bell all the time, so each INSERT
rings, by the same trigger as in the worker's database.
"""

from __future__ import annotations

import json
import select
import sys
import time
import uuid
from datetime import UTC, datetime

from bench import stamps
from pgtasks.model import Claimed
from pgtasks.outcome import Completed
from pgtasks.settings import QUEUE_DEFAULT
from pgtasks.store import ringing, session, statements
from pgtasks.store.statements import Lane

BATCH = 500
LEASE_S = 30.0
ARM_AGAIN_S = 0.001
_WORKER = uuid.uuid4()


def main(dsn: str, path: str) -> None:
    """Serve the default queue until the process is killed."""
    note = stamps.writer(path)
    lane = Lane(0, datetime(1970, 1, 1, tzinfo=UTC), 0)
    heard: list[object] = []
    with session.connect(dsn, "claim", worker="floor") as connection:
        # One that arrives with a statement's reply is read by the driver, and told to nobody else.
        connection.add_notify_handler(heard.append)
        connection.execute("LISTEN pgtasks")
        while not session.fetch_all(connection, ringing.arm_bells([QUEUE_DEFAULT]))[0].armed:
            # Somebody's INSERT is in flight, and who is asleep without the bell hears nothing.
            time.sleep(ARM_AGAIN_S)
        while True:
            # The first time: what was there before the bell was armed.
            while rows := session.fetch_all(connection, _claim(lane)):
                for row in rows:
                    note(json.loads(row.payload)["number"])
                lane = Lane(0, *max((row.run_at, row.id) for row in rows))
                session.fetch_all(connection, _complete(rows))
            _wait(connection, heard)
            # Before the claim, not after it: what is heard from now on may be about what it did not see.
            heard.clear()


def _wait(connection: session.SyncConnection, heard: list[object]) -> None:
    """Wait until a notification was heard, and take all that came; one that came before this call ends it at once."""
    while not heard:
        select.select([connection.fileno()], [], [])
        connection.pgconn.consume_input()
        while (note := connection.pgconn.notifies()) is not None:
            heard.append(note)


def _claim(lane: Lane) -> session.Statement[Claimed]:
    return statements.claim(QUEUE_DEFAULT, [lane], limit=BATCH, names=["stamp"], worker_id=_WORKER, lease_s=LEASE_S)


def _complete(rows: list[Claimed]) -> session.Statement[statements.Moved]:
    ended = sorted((row.id, row.lease_id) for row in rows)
    return statements.complete(_WORKER, ended, [Completed()] * len(ended), [rows[0].lease_id])


if __name__ == "__main__":
    main(*sys.argv[1:])
