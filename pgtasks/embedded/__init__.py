"""A local PostgreSQL server for development and tests, which needs no installation and no care.

`open_server` joins the server of a state folder, or starts it, and it stops when nobody uses it
any more. `PrivateServer` is one that its owner starts, stops and kills. Both listen on a Unix
socket, run as an ordinary user even when root asks for them, and never outlive their users.
"""

from pgtasks.embedded.binaries import Binaries, find_binaries, is_available
from pgtasks.embedded.client import LINGER_S, Lease, is_running, open_server, stop_server
from pgtasks.embedded.cluster import DATABASE, ROLE
from pgtasks.embedded.errors import (
    BinariesMissingError,
    EmbeddedError,
    ServerBusyError,
    StartError,
    StateFolderError,
)
from pgtasks.embedded.folder import state_folder
from pgtasks.embedded.options import FAST_OPTIONS
from pgtasks.embedded.private import PrivateServer
from pgtasks.embedded.state import RunningServer

__all__ = [
    "DATABASE",
    "FAST_OPTIONS",
    "LINGER_S",
    "ROLE",
    "Binaries",
    "BinariesMissingError",
    "EmbeddedError",
    "Lease",
    "PrivateServer",
    "RunningServer",
    "ServerBusyError",
    "StartError",
    "StateFolderError",
    "find_binaries",
    "is_available",
    "is_running",
    "open_server",
    "state_folder",
    "stop_server",
]
