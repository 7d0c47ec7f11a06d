"""Addresses of local servers, as URIs: they need no quotes in a shell and SQLAlchemy reads them."""

from pathlib import Path
from urllib.parse import quote


def socket_dsn(folder: Path, port: int, *, user: str, database: str) -> str:
    """The address of a database behind a Unix socket.

    The port is always named, because it is part of the socket's name and PGPORT would change it.
    """
    host = quote(str(folder), safe="")
    return f"postgresql://{quote(user, safe='')}@/{quote(database, safe='')}?host={host}&port={port}"


def tcp_dsn(host: str, port: int, *, user: str, password: str, database: str) -> str:
    """The address of a database behind a TCP port."""
    login = f"{quote(user, safe='')}:{quote(password, safe='')}"
    return f"postgresql://{login}@{host}:{port}/{quote(database, safe='')}"
