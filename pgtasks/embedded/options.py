"""Server settings: which ones a caller may choose, and what a server gets when none are chosen."""

import re
from collections.abc import Mapping

from pgtasks.embedded.errors import EmbeddedError

# For servers whose data may be lost, such as those of tests: no write waits for the disk.
FAST_OPTIONS: Mapping[str, str] = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
}

# Written into postgresql.conf when the data directory is made, so that `ALTER SYSTEM` and an
# editor can change them later. fsync stays on: a local server keeps its promises.
INITIAL_OPTIONS: Mapping[str, str] = {
    "max_connections": "100",
    "shared_buffers": "64MB",
    # Notice within a second that the client of a long statement was killed.
    "client_connection_check_interval": "1s",
    "log_line_prefix": "%m [%p] ",
    "log_timezone": "UTC",
    "timezone": "UTC",
}

# The supervisor's side of the protocol depends on these.
_OURS = frozenset(
    {
        "config_file",
        "data_directory",
        "external_pid_file",
        "hba_file",
        "ident_file",
        "listen_addresses",
        "logging_collector",
        "port",
        "unix_socket_directories",
        "unix_socket_permissions",
    }
)
_NAME = re.compile(r"[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)?")


def check_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options with lower-case names, or say which one cannot be set.

    Raises:
        EmbeddedError: a name is not a setting's name, or the setting belongs to the supervisor.
    """
    checked: dict[str, str] = {}
    for given, value in options.items():
        name = given.lower()
        if not _NAME.fullmatch(name):
            raise EmbeddedError(f"{given!r} is not the name of a PostgreSQL setting. Use names such as 'work_mem'.")
        if name in _OURS:
            raise EmbeddedError(
                f"The setting {name!r} cannot be chosen: a local server needs its own. Leave it "
                "out, or run your own server and set PGTASKS_DSN."
            )
        checked[name] = value
    return checked


def configuration_text(options: Mapping[str, str]) -> str:
    """The lines for postgresql.conf that set these options."""
    lines = [f"{name} = '{value.replace(chr(39), chr(39) * 2)}'" for name, value in options.items()]
    return "\n".join(["", "# Set by pgtasks when this data directory was made.", *lines, ""])
