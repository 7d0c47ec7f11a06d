"""`python -m pgtasks.cli.child`: a child process of a worker, which runs its isolated tasks.

No command for people: `pgtasks worker` starts it, with a socket.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import sys
from collections.abc import Sequence

from pgtasks.cli.exits import FAILURE, OK
from pgtasks.settings import WorkerSettings

MIB = 1024 * 1024
# Options of the interpreter that say what it runs, that take a value, and that concern its first program alone.
_PROGRAM, _VALUED, _ONCE = "cm", "WX", "ix"
_VALUED_LONG = "--check-hash-based-pycs"


def command(app: str, settings: WorkerSettings, log_worker: str = "") -> list[str]:
    """Give the command line of a worker's children, without the socket's descriptor.

    ``log_worker`` is what their log lines call the worker, if anything.
    To be asked before the app is loaded, whose module may change what this process knows of its start.
    """
    return [
        *(sys.executable, *interpreter_flags(sys.orig_argv[1:]), "-m", "pgtasks.cli.child", app),
        *("--log-format", settings.log_format, "--log-level", settings.log_level),
        *("--memory-mib", str(settings.child_memory_mib)),
        *(("--log-worker", log_worker) if log_worker else ()),
    ]


def interpreter_flags(words: Sequence[str]) -> list[str]:
    """Give the options of the interpreter itself that a command line of Python begins with (-X, -W, -O, -I)."""
    found: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == _VALUED_LONG:
            found += [word, next(rest, "default")]
        elif word == "-" or not word.startswith("-") or word.startswith("--"):
            break
        else:
            for position, letter in enumerate(word[1:], start=1):
                if letter in _PROGRAM:
                    return found
                if letter in _VALUED:
                    found += [f"-{letter}", word[position + 1 :] or next(rest, "")]
                    break
                if letter not in _ONCE:
                    found.append(f"-{letter}")
    return found


def main(argv: Sequence[str]) -> int:
    """Run tasks until the worker has no more; gives the exit code."""
    options = _options(argv)
    channel = socket.socket(fileno=options.fd)
    channel.set_inheritable(False)
    from pgtasks.cli import apps, logs
    from pgtasks.engine.isolated import Isolated

    isolated = Isolated(channel)
    try:
        _limit_memory(options.memory_mib)
        app = apps.load_app(options.app)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the worker is told
        with contextlib.suppress(OSError):
            # No flag of ours shows more of it here.
            isolated.send({"failed": f"{type(error).__name__}: {str(error).partition(' — `pgtasks --debug')[0]}"})
        return FAILURE
    logs.configure(options.log_format, options.log_level, options.log_worker)
    isolated.serve(app)
    return OK


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="pgtasks.cli.child", description="A child process of `pgtasks worker`.")
    parser.add_argument("app")
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--log-format", default="text")
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--log-worker", default="")
    parser.add_argument("--memory-mib", type=int, default=0)
    return parser.parse_args(argv)


def _limit_memory(limit_mib: int) -> None:
    if limit_mib:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (limit_mib * MIB, limit_mib * MIB))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
