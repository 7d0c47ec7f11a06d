"""Connection strings: what we add to a user's DSN, and how it is shown without its password."""

from __future__ import annotations

import re
from typing import Literal

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgtasks.errors import ConfigError

Part = Literal["claim", "finish", "heartbeat", "listen", "schedule", "metrics", "client", "cli", "migrate", "bench"]

# Without these libpq waits for ever on a connection whose other end has vanished. Both kinds
# are needed: the user timeout covers a query being sent, keepalives the wait for its reply.
_NETWORK = {
    "connect_timeout": "5",
    "keepalives": "1",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}

# What a role or database may have set otherwise, and what our statements rely on.
_SESSION = {
    # Our statements name the schema of every table; this does the same for functions and operators.
    "search_path": "pg_catalog,pg_temp",
    "timezone": "UTC",
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "bytea_output": "hex",
    "client_min_messages": "warning",
    "default_transaction_isolation": r"read\ committed",
    "idle_session_timeout": "0",
    "idle_in_transaction_session_timeout": "15000",
    "statement_timeout": "10000",
    "lock_timeout": "5000",
    # The server's half of the same: else it keeps a vanished client, and its locks, for hours.
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}
# Engine connections only: their statements always find their rows by an index. A plan that was
# cached while the tables were nearly empty must not read a million rows in order later on
# (docs/adr/0002-plans-that-do-not-flip.md).
_PLANNER = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    # Planning a claim anew costs more than running it, and never finds a better plan.
    "plan_cache_mode": "force_generic_plan",
}
# The scheduler waits for nobody: what another session keeps locked must not keep the other
# schedules that are due.
_SCHEDULE = {**_PLANNER, "lock_timeout": "500"}
# A stopped process that takes no notifications keeps its backend in the middle of sending them,
# with a snapshot that holds back vacuum in the whole database; here the server ends it.
_LISTEN = {**_PLANNER, "tcp_user_timeout": "30000"}
# Better no answer than one that costs more than what it tells. One plan for any size, as for the engine; but hashes,
# which are made of a few rows for each queue.
_METRICS = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "statement_timeout": "2000",
    "lock_timeout": "500",
}
# What a command reads is bounded, whatever the planner thinks: compiling it would take longer than running it.
_CLI = {"jit": "off"}
# A bulk is as slow as the iterable that feeds it.
_CLIENT = {"idle_in_transaction_session_timeout": "0"}
_OF_PART: dict[Part, dict[str, str]] = {
    **dict.fromkeys(("claim", "finish", "heartbeat"), _PLANNER),
    "listen": _LISTEN,
    "schedule": _SCHEDULE,
    "metrics": _METRICS,
    "client": _CLIENT,
    "cli": _CLI,
}


_FORM = (
    "expected postgresql://USER@HOST:PORT/DATABASE or key=value pairs such as 'host=db dbname=app user=app' "
    "(in a URL, special characters of a password are percent-encoded)"
)
_UNKNOWN_KEY = re.compile(r'invalid (?:connection option|URI query parameter:) "(\w+)"')
_WHOLE_NUMBERS = (
    "connect_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_count",
    "tcp_user_timeout",
)
_PORT_MAX = 65535
# What libpq says of a value that it only looks at when it connects.
_MISUSE = re.compile(r'invalid "?\w+"? value: ".*|definition of service ".*|could not match \d+ \w+ .*')


def parse(dsn: str, *, said: str = "the connection string") -> dict[str, str]:
    """Give a DSN's parameters; raises ConfigError, without echoing the DSN, when it is malformed.

    ``said`` is what the message calls it.
    """
    try:
        given = _read(dsn)
    except ProgrammingError as error:
        raise ConfigError(f"{said} cannot be read{_unknown_key(str(error), dsn)}; {_FORM}") from None
    # No value is shown: it may be the rest of a password that was not encoded.
    if any(port and not _is_port(port) for port in given.get("port", "").split(",")):
        raise ConfigError(f"{said} cannot be read: its port is no number from 1 to {_PORT_MAX}; {_FORM}")
    for key in _WHOLE_NUMBERS:
        if not re.fullmatch(r"\s*-?\d{1,9}\s*", given.get(key, "0"), re.ASCII):
            raise ConfigError(f"{said} cannot be read: its {key} is no whole number; leave it out or set it to one")
    return given


def misuse(message: str) -> str | None:
    """Give what libpq finds wrong with the connection settings themselves, None if that is not the trouble."""
    found = _MISUSE.search(message)
    return None if found is None else found[0].splitlines()[0]


def _read(dsn: str) -> dict[str, str]:
    return {key: str(value) for key, value in conninfo_to_dict(dsn).items() if value is not None}


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and 1 <= int(text[:6]) <= _PORT_MAX


def _unknown_key(problem: str, dsn: str) -> str:
    """Name the unknown key, unless it may be a part of a password: what follows one, or precedes an @."""
    found = _UNKNOWN_KEY.search(problem)
    if found is None:
        return ""
    before, _, after = dsn.partition(found[1])
    if re.search(r"password\s*=\s*\S+\s+$", before):
        return ": the option after its password does not exist (a password with spaces goes in single quotes)"
    return "" if "@" in after else f": there is no option {found[1]!r}"


def complete(dsn: str, part: Part, *, worker: str = "", pooler: str = "none") -> str:
    """Give the DSN with our network timeouts, name and session settings where it sets none.

    A transaction pooler refuses ``options``, so there the session keeps the server's settings.
    """
    given = parse(dsn)
    ours = {**_NETWORK, "application_name": f"pgtasks/{part}/{worker}".rstrip("/")[:63]}
    if pooler == "none":
        settings = {**_SESSION, **_OF_PART.get(part, {})}
        options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        given["options"] = f"{options} {given.get('options', '')}".strip()
    return make_conninfo("", **{**ours, **given})


def redacted(dsn: str) -> str:
    """Give a DSN as it may be shown: parameters as key=value, the password as ***."""
    try:
        given = _read(dsn)
    except ProgrammingError:
        return "(unreadable connection string)"
    given.update({key: "***" for key in ("password", "sslpassword") if key in given})
    return make_conninfo("", **given)


def without_secrets(message: str, dsn: str) -> str:
    """Remove a DSN's password from a message, whoever wrote it."""
    try:
        secret = _read(dsn).get("password")
    except ProgrammingError:
        secret = None
    message = re.sub(r"(://[^:/@\s]*):[^@\s]*@", r"\1:***@", message)
    return message.replace(secret, "***") if secret else message
