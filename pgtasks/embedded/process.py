"""Starts PostgreSQL programs that die with the process that started them."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Literal

from pgtasks.embedded import launcher
from pgtasks.embedded.account import ServerAccount
from pgtasks.embedded.errors import StartError

DeathWatch = Literal["prctl", "watch"]

_DEFAULT_WATCH: DeathWatch = "prctl" if sys.platform == "linux" else "watch"
_KEPT_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TZ")


def launch(
    argv: Sequence[str],
    *,
    account: ServerAccount | None,
    cwd: Path,
    output: IO[bytes] | int,
    lock: int | None = None,
    death_signal: signal.Signals = signal.SIGKILL,
    death_watch: DeathWatch | None = None,
) -> subprocess.Popen[bytes]:
    """Start a program as `account` in `cwd`; it gets `death_signal` when this process dies.

    Its standard input is empty and both its outputs go to `output`. It inherits the descriptor
    `lock`, so that this lock is taken for as long as it or any of its children lives.
    """
    job = {
        "argv": list(argv),
        "cwd": os.fspath(cwd),
        "account": account and [account.uid, account.gid, list(account.groups)],
        "owner_pid": os.getpid(),
        "death": death_watch or _DEFAULT_WATCH,
        "death_signal": int(death_signal),
    }
    start = partial(_start_launcher, json.dumps(job), output, lock)
    if threading.current_thread() is threading.main_thread():
        return start()
    return _in_lasting_thread(start)


def _start_launcher(job: str, output: IO[bytes] | int, lock: int | None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [interpreter(), "-I", "-S", launcher.__file__, job],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=_environment(),
        cwd="/",
        pass_fds=() if lock is None else (lock,),
        # The terminal's Ctrl-C is for the program that uses the server, not for the server.
        start_new_session=True,
    )


def run_tool(
    argv: Sequence[str],
    *,
    account: ServerAccount | None,
    cwd: Path,
    lock: int | None,
    timeout_s: float,
) -> tuple[int, str]:
    """Run a program to its end; return its exit status and everything it printed.

    Raises:
        StartError: it took longer than `timeout_s` and was killed.
    """
    with launch(argv, account=account, cwd=cwd, output=subprocess.PIPE, lock=lock) as process:
        try:
            printed, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            process.kill()
            raise StartError(
                f"{argv[0]} did not finish within {timeout_s:.0f} s. The machine may be overloaded: try again."
            ) from error
    return process.returncode, printed.decode(errors="replace").strip()


def interpreter() -> str:
    """The Python that runs the launcher and the supervisor.

    Raises:
        StartError: this program does not know its interpreter, for example because it is frozen.
    """
    if not sys.executable:
        raise StartError(
            "This program does not know its Python interpreter, which the local server needs. "
            "Set PGTASKS_DSN to a server that exists."
        )
    return sys.executable


def _environment() -> dict[str, str]:
    """A fixed environment, so that neither PG* variables nor a locale changes the server."""
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    return {"PATH": os.defpath, "LC_ALL": "C"} | kept


# Linux sends the parent-death signal when the *thread* that forked ends, not the process. So the
# programs that a shorter-lived thread wants are started by one that lasts as long as the process.
_Calls = queue.SimpleQueue[Callable[[], None]]
_lasting_thread_lock = threading.Lock()
_lasting_thread_calls: tuple[int, _Calls] | None = None


def _in_lasting_thread(start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    answers: queue.SimpleQueue[subprocess.Popen[bytes] | BaseException] = queue.SimpleQueue()

    def call() -> None:
        try:
            answers.put(start())
        except BaseException as error:  # noqa: BLE001  # raised again in the asking thread
            answers.put(error)

    _calls_of_lasting_thread().put(call)
    answer = answers.get()
    if isinstance(answer, BaseException):
        raise answer
    return answer


def _calls_of_lasting_thread() -> _Calls:
    global _lasting_thread_calls  # noqa: PLW0603  # one per process, made when first needed
    with _lasting_thread_lock:
        # A forked child has the variable, but not the thread.
        if _lasting_thread_calls is None or _lasting_thread_calls[0] != os.getpid():
            calls = _Calls()
            name = "pgtasks-embedded-launcher"
            threading.Thread(target=_run_for_ever, args=(calls,), name=name, daemon=True).start()
            _lasting_thread_calls = os.getpid(), calls
        return _lasting_thread_calls[1]


def _run_for_ever(calls: _Calls) -> None:
    while True:
        calls.get()()
