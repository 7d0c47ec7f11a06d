"""An app that goes to another folder as soon as it is imported, and whose handler says what process it runs in."""

import os
import sys
from pathlib import Path
from typing import Any

from pgtasks import App

STARTED_IN = str(Path.cwd())
os.chdir("/")

app = App()


@app.task(executor="process")
def surroundings() -> dict[str, Any]:
    """Give the folder of this process when the app was imported, and what Python was told."""
    return {
        "folder": STARTED_IN,
        "optimize": sys.flags.optimize,
        "options": sys._xoptions,  # noqa: SLF001 - documented, in spite of its name
        "warnings": sys.warnoptions,
    }
