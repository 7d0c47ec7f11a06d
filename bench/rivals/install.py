"""Environments of rivals: each has its own, made once and stamped with what is in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.report import progress
from bench.rivals.rival import Unavailable

_STAMP = "installed"
_TAIL = 3
_MINORS = 4


def python_environment(folder: Path, packages: Sequence[str], *, python: str = sys.executable) -> Path:
    """Make a virtual environment with these packages, unless it is there; gives its interpreter."""
    interpreter = folder / "bin" / "python"
    if not is_stamped(folder, [python, *packages]):
        progress(f"bench: installing {', '.join(packages)} into {folder.name}")
        shutil.rmtree(folder, ignore_errors=True)
        uv = shutil.which("uv")
        if uv:
            checked([uv, "venv", "--quiet", "--python", python, str(folder)])
            checked([uv, "pip", "install", "--quiet", "--python", str(interpreter), *packages])
        else:
            checked([python, "-m", "venv", str(folder)])
            checked([str(interpreter), "-m", "pip", "install", "--quiet", "--no-input", *packages])
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


def is_stamped(folder: Path, contents: Sequence[str]) -> bool:
    """Tell whether exactly this is installed in a folder."""
    file = folder / _STAMP
    return file.is_file() and file.read_text(encoding="utf-8") == "\n".join(contents)


def stamp(folder: Path, contents: Sequence[str]) -> None:
    """Write down what is installed in a folder."""
    (folder / _STAMP).write_text("\n".join(contents), encoding="utf-8")


def checked(argv: Sequence[str], env: Mapping[str, str] | None = None) -> None:
    """Run a command that makes something; raises Unavailable with the end of what it said."""
    surroundings = {**os.environ, **(env or {})}
    done = subprocess.run(argv, env=surroundings, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        said = " / ".join(done.stderr.strip().splitlines()[-_TAIL:])
        raise Unavailable(f"`{' '.join(argv)}` failed: {said}")
