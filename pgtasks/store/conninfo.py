"""Connection strings: what we add to a user's DSN, and how it is shown without its password."""

from __future__ import annotations

import re
from typing import Literal

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgtasks.errors import ConfigError

Part = Literal["claim", "finish", "heartbeat", "listen", "schedule", "client", "cli", "migrate", "bench"]

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
    "statement_timeout": "15000",
    "lock_timeout": "5000",
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
# A bulk is as slow as the iterable that feeds it.
_CLIENT = {"idle_in_transaction_session_timeout": "0"}
_OF_PART: dict[Part, dict[str, str]] = {
    **dict.fromkeys(("claim", "finish", "heartbeat", "listen"), _PLANNER),
    "schedule": _SCHEDULE,
    "client": _CLIENT,
}


def parse(dsn: str) -> dict[str, str]:
    """Give a DSN's parameters; raises ConfigError, without echoing the DSN, when it is malformed."""
    try:
        return {key: str(value) for key, value in conninfo_to_dict(dsn).items() if value is not None}
    except ProgrammingError:
        raise ConfigError(
            "the connection string cannot be read; expected postgresql://USER@HOST:PORT/DATABASE "
            "or key=value pairs such as 'host=db dbname=app user=app' "
            "(in a URL, special characters of a password are percent-encoded)"
        ) from None


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
        given = parse(dsn)
    except ConfigError:
        return "(unreadable connection string)"
    given.update({key: "***" for key in ("password", "sslpassword") if key in given})
    return make_conninfo("", **given)


def server_of(dsn: str) -> str:
    """Name the server and database of a DSN for messages: ``host=db port=5432 dbname=app``."""
    given = parse(dsn)
    return " ".join(f"{key}={given[key]}" for key in ("host", "hostaddr", "port", "dbname", "service") if key in given)


def without_secrets(message: str, dsn: str) -> str:
    """Remove a DSN's password from a message, whoever wrote it."""
    try:
        secret = parse(dsn).get("password")
    except ConfigError:
        secret = None
    message = re.sub(r"(://[^:/@\s]*):[^@\s]*@", r"\1:***@", message)
    return message.replace(secret, "***") if secret else message
