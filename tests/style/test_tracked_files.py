"""The repository holds nothing of the machine that it was written on."""

import re
from pathlib import Path

from tests.style.checkout import ROOT, name, tracked_files

DOCUMENTED_EXAMPLES = {Path(__file__).name}
REGISTRY = re.compile(r"(?:pypi\.org/simple|files\.pythonhosted\.org|index-url|find-links)")
HOME = re.compile(r"(?:/home|/Users|/root)/[\w.-]+")
DEPTH_MIN = 3  # a checkout in /src would be found in every text about /src


def texts() -> list[tuple[str, str]]:
    """Return the name and the text of every tracked file but this one."""
    return [
        (name(path), path.read_text(encoding="utf-8", errors="replace"))
        for path in tracked_files()
        if path.name not in DOCUMENTED_EXAMPLES
    ]


def test_no_file_names_a_registry() -> None:
    """Where packages come from is the business of whoever installs them."""
    assert [place for place, text in texts() if REGISTRY.search(text)] == []


def test_no_file_names_a_folder_of_one_machine() -> None:
    """A path below somebody's home, or this very checkout, exists nowhere else."""
    here = [re.escape(str(ROOT))] if len(ROOT.parts) >= DEPTH_MIN else []
    local = re.compile("|".join([HOME.pattern, *here]))
    assert [f"{place}: {m[0]}" for place, text in texts() for m in local.finditer(text)] == []


def test_no_file_pins_an_installation() -> None:
    """Lock files hold addresses, and a version file overrules a newcomer's Python."""
    pins = re.compile(r".*\.lock|\.python-version|requirements.*\.txt|pip\.conf|uv\.toml")
    assert [name(path) for path in tracked_files() if pins.fullmatch(path.name)] == []
