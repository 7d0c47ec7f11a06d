"""The account a server runs under, because PostgreSQL refuses to run as root."""

import os
import pwd
from dataclasses import dataclass

from pgtasks.embedded.errors import EmbeddedError

_CANDIDATES = ("postgres", "nobody")


@dataclass(frozen=True, slots=True)
class ServerAccount:
    """A user whom root turns into before it starts a server."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]


def server_account() -> ServerAccount | None:
    """The account for a server that this process starts; None for its own.

    Only root changes accounts: to `postgres` where that user exists, else to `nobody`. No user
    is ever created.

    Raises:
        EmbeddedError: root finds neither of the two, or the own user id has no name.
    """
    if os.geteuid() != 0:
        _require_a_name(os.geteuid())
        return None
    for name in _CANDIDATES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            groups = tuple(os.getgrouplist(name, entry.pw_gid))
            return ServerAccount(name, entry.pw_uid, entry.pw_gid, groups)
    raise EmbeddedError(
        "PostgreSQL does not run as root, and there is neither a user 'postgres' nor 'nobody' to "
        "run it as. Run as an ordinary user, or set PGTASKS_DSN to a server that exists."
    )


def _require_a_name(uid: int) -> None:
    try:
        pwd.getpwuid(uid)
    except KeyError as error:
        raise EmbeddedError(
            f"User id {uid} has no entry in the user database, and PostgreSQL needs one. Add an "
            "entry to /etc/passwd, or set PGTASKS_DSN to a server that exists."
        ) from error
