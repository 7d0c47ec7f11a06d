"""The options that several commands have, and the readers of their values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from pgtasks.durations import is_duration, seconds_in
from pgtasks.errors import ConfigError
from pgtasks.model import STATUSES

Dsn = Annotated[
    str | None,
    typer.Option("--dsn", metavar="DSN", help="PostgreSQL connection string; PGTASKS_DSN when not given."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Queue = Annotated[str | None, typer.Option("--queue", metavar="QUEUE", help="Only this queue.")]
Name = Annotated[str | None, typer.Option("--name", metavar="NAME", help="Only tasks of this name.")]
TaskIds = Annotated[list[int], typer.Argument(metavar="ID…", help="Task ids.", show_default=False)]
TaskId = Annotated[int, typer.Argument(metavar="ID", help="Task id.", show_default=False)]

ID_MAX = 2**63 - 1


def check_ids(ids: list[int]) -> list[int]:
    """Give ids back in order, each once; raises ConfigError for one that no task can have."""
    for id in ids:
        if not 1 <= id <= ID_MAX:
            raise ConfigError(f"task ids are whole numbers from 1 to {ID_MAX}, got {id}")
    return list(dict.fromkeys(ids))


def check_status(status: str | None) -> str | None:
    """Give a status back; raises ConfigError, with what was probably meant, for an unknown one."""
    if status is None or status in STATUSES:
        return status
    raise ConfigError(f"unknown status {status!r}{did_you_mean(status, STATUSES)} — one of {', '.join(STATUSES)}")


def duration(text: str, option: str) -> float:
    """Read seconds, or a number with a unit (90, 15m, 1h30m, 2d); raises ConfigError."""
    if text.startswith("-") and is_duration(text.removeprefix("-")):
        raise ConfigError(f"{option} must not be negative, got {text!r}")
    if not is_duration(text):
        raise ConfigError(f"{option} {text!r} is no duration — seconds, or units as in 90s, 15m, 1h30m, 2d")
    return seconds_in(text)


def instant(text: str, option: str) -> datetime:
    """Read an ISO 8601 date and time with its offset from UTC; raises ConfigError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{option} {text!r} is no date and time — ISO 8601 with an offset, such as 2027-01-31T09:00:00Z"
        ) from None
    if moment.tzinfo is None:
        raise ConfigError(f"{option} {text!r} does not say its offset from UTC — add Z, or one such as +01:00")
    return moment


def past(text: str | None, option: str) -> datetime | None:
    """Read a moment of the past: ISO 8601, or how long ago (2h, 7d); raises ConfigError."""
    if text is None:
        return None
    if is_duration(text):
        try:
            return datetime.now(UTC) - timedelta(seconds=duration(text, option))
        except OverflowError:
            raise ConfigError(f"{option} {text!r} is too long ago") from None
    try:
        return instant(text, option)
    except ConfigError as error:
        raise ConfigError(f"{error}, or how long ago: 2h, 7d") from None


def as_typed(message: str) -> str:
    """Give what is wrong with a schedule in the words of the command line, where Python's are others."""
    return message.replace("seconds=True", "--seconds").replace("missed_max", "--missed-max")


def did_you_mean(word: str, known: object) -> str:
    """Give `; did you mean 'x'?` for a misspelt word, or nothing."""
    import difflib

    close = difflib.get_close_matches(word, [str(one) for one in known] if hasattr(known, "__iter__") else [], n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
