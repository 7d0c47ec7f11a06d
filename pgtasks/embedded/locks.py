"""Advisory file locks (`flock`), which the kernel releases when their last holder dies.

A lock belongs to the *open file description*: a child that inherits the descriptor holds the
same lock, and it is free only when every copy is closed. That property carries the whole
embedded server, so nothing here ever calls `LOCK_UN` on a descriptor that was handed on.
"""

import fcntl
import os
import time
from pathlib import Path

SHARED = fcntl.LOCK_SH
EXCLUSIVE = fcntl.LOCK_EX

POLL_S = 0.02


def open_lock(path: Path) -> int:
    """Open a lock file, made if it is missing, and return its descriptor.

    Never follows a symbolic link, and the descriptor is closed on `exec` unless it is passed on.
    """
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def try_lock(descriptor: int, mode: int) -> bool:
    """Take the lock if that is possible now, and say whether it was."""
    try:
        fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_until(descriptor: int, mode: int, deadline: float) -> bool:
    """Take the lock, trying until `deadline` (of `time.monotonic`); False when time ran out."""
    while not try_lock(descriptor, mode):
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)
    return True


def unlock(descriptor: int) -> None:
    """Release a lock that this process alone holds."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def is_free(path: Path) -> bool:
    """Whether nobody holds the lock in this file at the moment."""
    descriptor = open_lock(path)
    try:
        return try_lock(descriptor, EXCLUSIVE)
    finally:
        os.close(descriptor)
