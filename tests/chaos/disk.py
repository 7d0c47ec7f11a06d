"""A file system of a few hundred MiB in memory, which can be filled up; only root can make one."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

_MIB = 1024 * 1024
_PAGE_BYTES = 4096
# Run by its own interpreter: its standard input ends when the harness does, however that ends.
_UNMOUNT_AT_THE_END = """
import subprocess, sys
sys.stdin.read()
subprocess.run(["umount", "-l", sys.argv[1]], capture_output=True)
"""


def available() -> bool:
    """Say whether such a disk can be made here."""
    return sys.platform == "linux" and os.geteuid() == 0 and shutil.which("mount") is not None


class SmallDisk:
    """A tmpfs over an empty folder, from `mount` to `unmount` or the end of this process."""

    def __init__(self, folder: Path, mib: int) -> None:
        self._folder, self._mib = folder, mib
        self._ballast = folder / "ballast"
        self._guard: subprocess.Popen[bytes] | None = None

    def mount(self) -> None:
        """Mount it; CalledProcessError where that is not allowed."""
        argv = ["mount", "-t", "tmpfs", "-o", f"size={self._mib}m,mode=711", "pgtasks-chaos", str(self._folder)]
        subprocess.run(argv, check=True, capture_output=True)
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _UNMOUNT_AT_THE_END, str(self._folder)],
            stdin=subprocess.PIPE,
            cwd="/",
            start_new_session=True,
        )

    def unmount(self) -> None:
        """Unmount it, with all that is on it; may be called again."""
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.communicate()

    def fill(self, *, leave_mib: float = 0.0) -> None:
        """Write a file that leaves only so much room, whoever else writes meanwhile."""
        with self._ballast.open("ab") as ballast:
            step = self._mib * _MIB
            while step >= _PAGE_BYTES:
                step = min(step, self.free_bytes() - int(leave_mib * _MIB))
                try:
                    if step > 0:
                        os.posix_fallocate(ballast.fileno(), ballast.seek(0, os.SEEK_END), step)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    # Somebody else took some of it. A large piece that fails is given back slowly.
                    step //= 2

    def clear(self) -> None:
        """Remove that file, if it is there."""
        self._ballast.unlink(missing_ok=True)

    def free_bytes(self) -> int:
        """Give how much room is left."""
        return shutil.disk_usage(self._folder).free
