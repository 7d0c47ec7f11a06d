"""Turns into a PostgreSQL program: gives up root, ties its life to its owner's, then `exec`s.

Run by path in a fresh interpreter (`python -I -S launcher.py JSON`), never imported by it, and
made of the standard library alone. It exists because all of this must happen between `fork` and
`exec`, where a threaded process must not run Python code. The process id stays the same, so
whoever started the launcher owns the server directly.

The order matters:
 1. the watcher, where there is no parent-death signal (macOS): while still root, so that it may
    signal the server whatever its account is
 2. `setgroups`, `setgid`, `setuid`
 3. the parent-death signal (Linux): after `setuid`, which clears it
 4. is the owner still there? It may have died before step 3, and then no signal would come
 5. `chdir`, `exec`

Each failure has its own exit status, so that the caller can tell what to repair.
"""

import ctypes
import json
import os
import select
import signal
import sys
from typing import Any, NoReturn

EXIT_ACCOUNT = 96
EXIT_FOLDER = 97
EXIT_EXEC = 98
EXIT_ORPHAN = 99

_PR_SET_PDEATHSIG = 1
# More than the launcher ever has: the standard streams, one lock, one pipe.
_DESCRIPTORS_MAX = 1024


def main(argument: str) -> NoReturn:
    """Do what the JSON object says.

    Keys: `argv`, `cwd` (or null), `account` ([uid, gid, groups] or null), `owner_pid`, `death`
    ("prctl" for the parent-death signal, "watch" for the watcher process) and `death_signal`.
    """
    job: dict[str, Any] = json.loads(argument)
    if job["death"] == "watch":
        _fork_watcher(job["owner_pid"], job["death_signal"])
    if job["account"] is not None:
        _become(*job["account"])
    if job["death"] == "prctl":
        _die_with_parent(job["death_signal"])
    if os.getppid() != job["owner_pid"]:
        _fail(EXIT_ORPHAN, "the process that wanted this server is gone")
    if job["cwd"] is not None:
        try:
            os.chdir(job["cwd"])
        except OSError as error:
            _fail(EXIT_FOLDER, f"cannot enter {job['cwd']}: {error.strerror}")
    # Python ignores these two, and `exec` would hand that on to every child of the server.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    argv: list[str] = job["argv"]
    try:
        os.execv(argv[0], argv)  # noqa: S606  # no shell is wanted
    except OSError as error:
        _fail(EXIT_EXEC, f"cannot run {argv[0]}: {error.strerror}")


def _fail(status: int, message: str) -> NoReturn:
    sys.stderr.write(message + "\n")
    sys.stderr.flush()
    os._exit(status)


def _become(uid: int, gid: int, groups: list[int]) -> None:
    try:
        os.setgroups(groups)
        os.setgid(gid)
        os.setuid(uid)
    except OSError as error:
        _fail(EXIT_ACCOUNT, f"cannot become user {uid}, group {gid}: {error.strerror}")


def _die_with_parent(death_signal: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0) != 0:
        reason = os.strerror(ctypes.get_errno())
        _fail(EXIT_ACCOUNT, f"cannot set the parent-death signal: {reason}")


def _fork_watcher(owner_pid: int, death_signal: int) -> None:
    """Leave a process behind that signals this one (by then the server) when the owner dies.

    It is forked twice, because the server must not find an unknown child: PostgreSQL looks at
    every child that exits. The pipe holds the launcher back until the watcher is on guard.
    """
    server_pid = os.getpid()
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        if os.fork() == 0:
            _guard(owner_pid, server_pid, death_signal, tell)
        os._exit(0)
    os.close(tell)
    os.waitpid(child, 0)
    if os.read(ready, 1) != b"!":
        _fail(EXIT_ACCOUNT, "the watcher of this server did not start")
    os.close(ready)


def _guard(owner_pid: int, server_pid: int, death_signal: int, tell: int) -> NoReturn:
    os.setsid()
    # The inherited descriptors hold locks, which must be free as soon as the server is dead.
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    os.closerange(3, tell)
    os.closerange(tell + 1, _DESCRIPTORS_MAX)
    try:
        if _first_to_exit(owner_pid, server_pid, tell) == owner_pid:
            os.kill(server_pid, death_signal)
    finally:
        # Whatever went wrong, this copy of the launcher must never go on to run a server.
        os._exit(0)


# Both ways to wait name the process itself and not its number, so a number that is used again
# cannot mislead them. They write to `tell` once both processes are watched.
if sys.platform == "linux":

    def _first_to_exit(owner_pid: int, server_pid: int, tell: int) -> int:
        """Wait for the first of two processes to exit and return its id."""
        server, owner = os.pidfd_open(server_pid), os.pidfd_open(owner_pid)
        _report_ready(tell)
        ready, _, _ = select.select([server, owner], [], [])
        return server_pid if server in ready else owner_pid

else:

    def _first_to_exit(owner_pid: int, server_pid: int, tell: int) -> int:
        """Wait for the first of two processes to exit and return its id."""
        queue = select.kqueue()
        changes = [
            select.kevent(
                pid,
                filter=select.KQ_FILTER_PROC,
                flags=select.KQ_EV_ADD | select.KQ_EV_ONESHOT,
                fflags=select.KQ_NOTE_EXIT,
            )
            for pid in (server_pid, owner_pid)
        ]
        queue.control(changes, 0)
        _report_ready(tell)
        gone = {event.ident for event in queue.control(None, 2, None)}
        return server_pid if server_pid in gone else owner_pid


def _report_ready(tell: int) -> None:
    os.write(tell, b"!")
    os.close(tell)


if __name__ == "__main__":
    main(sys.argv[1])
