"""Environments of rivals: each has its own, made once and stamped with what is in it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from bench.report import progress
from bench.rivals.rival import Unavailable

_STAMP = "installed"
_TAIL = 3
_MINORS = 4
# A command that makes something: how long it may take, and how often it is said that it still runs.
LIMIT_S, SAID_EVERY_S = 600.0, 30.0
_NETWORK = "; the network, or the settings of its proxy and of its certificates (CA), may be the cause"


def python_environment(folder: Path, packages: Sequence[str], *, python: str = sys.executable) -> Path:
    """Make a virtual environment with these packages, unless it is there; gives its interpreter."""
    interpreter = folder / "bin" / "python"
    if not is_stamped(folder, [python, *packages], interpreter):
        progress(f"bench: installing {', '.join(packages)} into {folder.name}")
        shutil.rmtree(folder, ignore_errors=True)
        uv = shutil.which("uv")
        if uv:
            checked([uv, "venv", "--quiet", "--python", python, str(folder)], is_fetching=True)
            checked([uv, "pip", "install", "--quiet", "--python", str(interpreter), *packages], is_fetching=True)
        else:
            checked([python, "-m", "venv", str(folder)])
            pip = [str(interpreter), "-m", "pip", "install", "--quiet", "--no-input"]
            checked([*pip, *packages], is_fetching=True)
        stamp(folder, [python, *packages])
    return interpreter


def python_of(oldest: tuple[int, int]) -> str:
    """Find an interpreter that is new enough; raises Unavailable when there is none."""
    if sys.version_info >= oldest:
        return sys.executable
    wanted = ".".join(str(part) for part in oldest)
    names = [f"python{oldest[0]}.{minor}" for minor in range(oldest[1], oldest[1] + _MINORS)]
    found = [path for name in names if (path := shutil.which(name))]
    # pyenv has versions that are not on the PATH, and names there that do not run.
    found += [str(path) for name in names for path in Path.home().glob(f".pyenv/versions/*/bin/{name}")]
    for path in found:
        if subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
            return path
    uv = shutil.which("uv")
    if uv:
        return wanted  # It finds or fetches one.
    raise Unavailable(f"it needs Python {wanted}, which is not installed here")


def is_stamped(folder: Path, contents: Sequence[str], program: Path) -> bool:
    """Tell whether exactly this is installed in a folder, and the program that runs it is still there.

    An environment's interpreter is a link, which leads nowhere once the Python that made it was replaced.
    """
    file = folder / _STAMP
    return program.exists() and file.is_file() and file.read_text(encoding="utf-8") == "\n".join(contents)


def stamp(folder: Path, contents: Sequence[str]) -> None:
    """Write down what is installed in a folder."""
    (folder / _STAMP).write_text("\n".join(contents), encoding="utf-8")


def checked(
    argv: Sequence[str],
    env: Mapping[str, str] | None = None,
    *,
    limit_s: float = LIMIT_S,
    is_fetching: bool = False,
) -> None:
    """Run a command that makes something; raises Unavailable with the end of what it said, or after a time.

    `is_fetching` says that it needs the network, which is then named as what may be the cause.
    """
    hint = _NETWORK if is_fetching else ""
    try:
        # In a group of its own, so that what it started ends with it.
        process = subprocess.Popen(
            argv,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise Unavailable(f"{argv[0]} does not start: {error.strerror}") from error
    with process:
        try:
            output = _output(process, Path(argv[0]).name, limit_s)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    if output is None:
        raise Unavailable(f"`{' '.join(argv)}` did not end within {limit_s:g} s{hint}")
    if process.returncode != 0:
        # `python -m venv` gives its reasons on standard output.
        said = next(filter(None, (text.strip() for text in reversed(output))), "it said nothing")
        tail = " / ".join(said.splitlines()[-_TAIL:])
        raise Unavailable(f"`{' '.join(argv)}` failed: {tail}{hint}")


def _output(process: subprocess.Popen[str], name: str, limit_s: float) -> tuple[str, str] | None:
    """Wait, and say now and then that it still runs; gives what it said, or None when the time is over."""
    began = time.monotonic()
    while (left_s := began + limit_s - time.monotonic()) > 0:
        with suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=min(SAID_EVERY_S, left_s))
        progress(f"bench: {name} still runs after {time.monotonic() - began:.0f} s")
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return None
