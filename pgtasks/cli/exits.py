"""The one place that turns what went wrong into a message and an exit code.

===  ==========================================================================
0    it worked
1    it did not, for a reason that is no mistake in the command
2    usage: an option, an argument, a setting or a payload is wrong
3    what was named is not there
4    the database cannot be reached
5    the schema is missing, outdated or too new
130  interrupted
===  ==========================================================================
"""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
from collections.abc import Sequence

import typer

from pgtasks import errors
from pgtasks.cli import rights
from pgtasks.cli.escape import escape
from pgtasks.cli.options import as_typed
from pgtasks.store import conninfo
from pgtasks.store.session import is_about_rights

OK, FAILURE, USAGE, NOT_FOUND, UNREACHABLE, SCHEMA, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130

# The commands that write a log.
_LOGGING = frozenset({"worker", "scheduler", "metrics"})
# The first that fits counts.
_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (errors.UniqueConflict, FAILURE),
    (errors.ConfigError, USAGE),
    (errors.EnqueueError, USAGE),
    (errors.NotFound, NOT_FOUND),
    (errors.SchemaError, SCHEMA),
    (errors.DatabaseUnavailable, UNREACHABLE),
    (KeyboardInterrupt, INTERRUPTED),
)


class Terminated(SystemExit):
    """A signal ended the program before its work began; nothing went wrong."""


def report(error: BaseException, argv: Sequence[str]) -> int:
    """Tell a person, or with --json a program, on standard error what happened; give the exit code.

    A command whose log is JSON tells it as the last line of that log.
    """
    if isinstance(error, OSError) and error.errno == errno.EPIPE:
        _give_up_output()
        return FAILURE
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(f"{error}\n")
        return USAGE
    code, message = code_of(error), message_of(error, argv)
    if code == INTERRUPTED or not message:
        return code
    message = without_passwords(message, argv)
    trace = _traceback(error, argv) if "--debug" in argv else ""
    command = _logs_json(argv)
    if command:
        from pgtasks.cli.logs import last_line

        sys.stderr.write(last_line(command, message, code, trace))
        return code
    sys.stderr.write(trace)
    if "--json" in argv:
        from pgtasks.cli.output import json_text

        sys.stderr.write(json_text({"error": {"message": message, "exit_code": code}}) + "\n")
    else:
        lines = escape(message, keep_newlines=True).splitlines()
        sys.stderr.write("\n  ".join([f"error: {lines[0]}", *lines[1:]]) + "\n")
    return code


def _logs_json(argv: Sequence[str]) -> str:
    """Name the command, if it writes a log and a flag or a variable wants JSON."""
    command = next((word for word in argv if not word.startswith("-")), "")
    if command not in _LOGGING:
        return ""
    wanted = os.environ.get("PGTASKS_LOG_FORMAT", "")
    for word, following in zip(argv, [*argv[1:], ""], strict=True):
        flag, given, text = word.partition("=")
        if flag == "--log-format":
            wanted = text if given else following
    return command if wanted == "json" else ""


def code_of(error: BaseException) -> int:
    """Give the exit code that an error stands for."""
    if isinstance(error, typer.Abort):
        return INTERRUPTED
    if isinstance(error, typer.TyperException):
        return int(getattr(error, "exit_code", USAGE))
    if type(error).__module__.startswith("pgtasks.embedded") and type(error).__name__ != "ServerBusyError":
        return UNREACHABLE
    return next((code for kind, code in _CODES if isinstance(error, kind)), FAILURE)


def message_of(error: BaseException, argv: Sequence[str] = ()) -> str:
    """Give what happened and the fix, which may depend on the command."""
    if isinstance(error, typer.TyperException):
        return _usage_message(error)
    if isinstance(error, errors.DatabaseError) and is_about_rights(error):
        return rights.message_of(error, argv)
    message = str(error).strip()
    if not isinstance(error, errors.PgtasksError):
        kind = type(error).__name__
        return f"unexpected {kind}: {message} — this is a bug in pgtasks; `pgtasks --debug …` shows where"
    # What an app's own code says, which could not be imported, is about Python.
    typed = isinstance(error, errors.ConfigError) and not isinstance(error, errors.AppImportError)
    return as_typed(message) if typed else message


def without_passwords(text: str, argv: Sequence[str] = ()) -> str:
    """Take passwords out of a text: those of the DSN in use, and whatever looks like one."""
    given = [argument.removeprefix("--dsn=") for argument in argv if "://" in argument or "=" in argument]
    for dsn in (os.environ.get("PGTASKS_DSN", ""), *given):
        text = conninfo.without_secrets(text, dsn)
    return re.sub(r"(password\s*=\s*)('(?:[^'\\]|\\.)*'|\S+)", r"\1***", text)


def _usage_message(error: typer.TyperException) -> str:
    if isinstance(error, typer.Exit | typer.Abort):
        return ""
    message = str(getattr(error, "format_message", lambda: str(error))()).strip().rstrip(".")
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", None)
    message = message[:1].lower() + message[1:]
    return f"{message} — see: {path} --help" if path else message


def _traceback(error: BaseException, argv: Sequence[str]) -> str:
    text = "".join(traceback.format_exception(error))
    return escape(without_passwords(text, argv), keep_newlines=True)


def _give_up_output() -> None:
    """Nobody reads standard output any more: keep Python from complaining about it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
