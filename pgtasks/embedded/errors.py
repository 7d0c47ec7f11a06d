"""The errors of the local server; each message says what happened and what to do.

The tree:

    PgtasksError
    └── EmbeddedError
        ├── BinariesMissingError   no PostgreSQL binaries where we looked
        ├── StateFolderError       the state folder cannot be used as it is
        ├── StartError             the server did not start
        └── ServerBusyError        a stop was refused because somebody uses the server
"""

from pgtasks.errors import PgtasksError


class EmbeddedError(PgtasksError):
    """Raised when the local PostgreSQL server cannot do what it was asked for."""


class BinariesMissingError(EmbeddedError):
    """Raised when no usable PostgreSQL binaries are found."""


class StateFolderError(EmbeddedError):
    """Raised when the folder that should hold the server's files cannot be used."""


class StartError(EmbeddedError):
    """Raised when the server does not start, with the reason from its log."""


class ServerBusyError(EmbeddedError):
    """Raised when a server that is in use was asked to stop without force."""
