"""Wall clocks that a test sets while the process under test runs."""

import os
import uuid
from pathlib import Path
from typing import Literal

from tests.database import ROOT

Kind = Literal["patched", "faketime"]
LIBRARIES = [*Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), *Path("/usr/lib/faketime").glob("*MT.so.1")]
HAS_FAKETIME = bool(LIBRARIES)


class Clock:
    """The wall clock of the processes that are started with its ``env``; the monotonic clock stays as it is.

    ``patched`` shifts what Python gives for the time (``sitecustomize`` beside this file), which works
    everywhere; ``faketime`` shifts what the C library gives, for everything in the process.
    """

    def __init__(self, folder: Path, kind: Kind, shift_s: float = 0.0) -> None:
        self._path = folder / f"clock-{uuid.uuid4().hex}"
        self.set(shift_s)
        if kind == "patched":
            path = os.pathsep.join([str(Path(__file__).parent), str(ROOT)])
            self.env = {"PYTHONPATH": path, "PGTASKS_TEST_CLOCK": str(self._path)}
        else:
            self.env = {
                "LD_PRELOAD": str(LIBRARIES[0]),
                "FAKETIME_TIMESTAMP_FILE": str(self._path),
                "FAKETIME_NO_CACHE": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            }

    def set(self, shift_s: float) -> None:
        """Put the clock so many seconds ahead, or back; whoever reads it sees the old or the new shift."""
        new = self._path.with_suffix(".new")
        new.write_text(f"{shift_s:+.0f}")
        new.replace(self._path)
