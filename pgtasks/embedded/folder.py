"""The folders a server lives in: where they are, who owns them, how they are made.

A folder of ours is 0700. When root starts servers, the folder itself belongs to root with mode
0711, so that the server's account can pass through it but change nothing in it, and the folders
inside that the account needs (`data`, `socket`) belong to the account and are 0700. That keeps
root from ever opening a file by a name that another account could replace with a link.

A folder that exists already is checked and never changed.
"""

import hashlib
import os
import stat
import sys
import tempfile
from pathlib import Path

from pgtasks.embedded.account import ServerAccount
from pgtasks.embedded.errors import StateFolderError

VARIABLE = "PGTASKS_EMBEDDED_DIR"
ROOT_FOLDER = Path("/var/lib/pgtasks-embedded")

_WAY_OUT = f"Set {VARIABLE} to another folder."
# The kernel's room for the path of a Unix socket, without the final zero byte.
SOCKET_PATH_BYTES_MAX = 107 if sys.platform == "linux" else 103


def state_folder(explicit: Path | None = None) -> Path:
    """Where the local server's files are: the argument, else `PGTASKS_EMBEDDED_DIR`, else ours.

    Ours is `/var/lib/pgtasks-embedded` for root, and for everybody else `pgtasks/embedded` in
    `XDG_STATE_HOME` or `~/.local/state`.

    Raises:
        StateFolderError: there is no home directory to put it in.
    """
    if explicit is not None:
        return explicit.absolute()
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named).expanduser().absolute()
    if os.geteuid() == 0:
        return ROOT_FOLDER
    base = Path(os.environ.get("XDG_STATE_HOME", ""))
    if base.is_absolute():  # The specification says that a relative one is to be ignored.
        return base / "pgtasks" / "embedded"
    try:
        home = Path.home()
    except RuntimeError as error:
        raise StateFolderError(f"There is no home directory to keep data in. {_WAY_OUT}") from error
    return home / ".local" / "state" / "pgtasks" / "embedded"


def make_folder(path: Path, account: ServerAccount | None) -> None:
    """Make the folder and its missing parents, or check that an existing one is safe to use.

    Raises:
        StateFolderError: it cannot be made, belongs to somebody else, or others can write to it.
    """
    mode = 0o700 if account is None else 0o711
    try:
        missing = [path, *path.parents]
        missing = missing[: next(i for i, folder in enumerate(missing) if folder.exists())]
        for folder in reversed(missing):
            _make_one(folder, mode)
    except OSError as error:
        raise StateFolderError(f"Cannot make the folder {path}: {error.strerror}. {_WAY_OUT}") from error
    _check(path, path.stat(), os.geteuid())


def make_private_folder(path: Path, account: ServerAccount | None) -> None:
    """Make a folder that only the server's account can enter; an existing one must be such."""
    owner = os.geteuid() if account is None else account.uid
    try:
        path.mkdir(0o700)
        if account is not None:
            os.chown(path, account.uid, account.gid)
    except FileExistsError:
        # Not through a symbolic link: the folder may be in one that everybody can write to.
        facts = path.lstat()
        _check(path, facts, owner)
        if facts.st_mode & 0o077:
            raise StateFolderError(f"{path} can be entered by other users. Remove it, it is made again.") from None
    except OSError as error:
        raise StateFolderError(f"Cannot make the folder {path}: {error.strerror}. {_WAY_OUT}") from error


def socket_folder(directory: Path, port: int) -> Path:
    """The folder for the server's socket: in `directory`, or a short one when that is too long.

    Raises:
        StateFolderError: even the folder for temporary files has too long a path.
    """
    here = directory / "socket"
    if _socket_fits(here, port):
        return here
    key = hashlib.sha256(os.fsencode(directory)).hexdigest()[:12]
    for base in dict.fromkeys((tempfile.gettempdir(), "/tmp")):  # noqa: S108  # checked when made
        short = Path(base) / f"pgtasks-{os.geteuid()}-{key}"
        if _socket_fits(short, port):
            return short
    raise StateFolderError(
        f"The path of the server's socket in {directory} would be longer than the "
        f"{SOCKET_PATH_BYTES_MAX} bytes that the system allows. Set {VARIABLE} to a folder with a "
        "shorter path."
    )


def socket_path(folder: Path, port: int) -> Path:
    """The socket file that PostgreSQL makes in a folder."""
    return folder / f".s.PGSQL.{port}"


def blocking_parent(path: Path, account: ServerAccount) -> Path | None:
    """The first folder on the way to `path` that the account cannot pass, for a message."""
    for folder in [*reversed(path.parents), path]:
        facts = folder.stat()
        if facts.st_uid == account.uid:
            needed = stat.S_IXUSR
        elif facts.st_gid in {account.gid, *account.groups}:
            needed = stat.S_IXGRP
        else:
            needed = stat.S_IXOTH
        if not facts.st_mode & needed:
            return folder
    return None


def _socket_fits(folder: Path, port: int) -> bool:
    # PostgreSQL also makes a lock file, but only the socket's own path has a limit.
    return len(os.fsencode(socket_path(folder, port))) <= SOCKET_PATH_BYTES_MAX


def _make_one(folder: Path, mode: int) -> None:
    try:
        folder.mkdir(mode)
    except FileExistsError:
        return  # Another starter was faster, and it is checked below like any other.
    folder.chmod(mode)  # The umask may have taken away the account's way through.


def _check(path: Path, facts: os.stat_result, owner: int) -> None:
    if not stat.S_ISDIR(facts.st_mode):
        raise StateFolderError(f"{path} is not a folder. {_WAY_OUT}")
    if facts.st_uid != owner:
        raise StateFolderError(
            f"{path} belongs to user id {facts.st_uid}, not to {owner}. Run as its owner, or set "
            f"{VARIABLE} to another folder."
        )
    if facts.st_mode & 0o022:
        raise StateFolderError(
            f"{path} can be changed by other users. Run chmod go-w on it, or set {VARIABLE} to another folder."
        )
