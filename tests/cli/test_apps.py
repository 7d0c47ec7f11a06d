"""MODULE:APP is loaded from the current folder; what cannot be loaded says what to write instead."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgtasks import App
from pgtasks.cli.apps import load_app
from pgtasks.errors import AppImportError

MODULES = {
    "shop.py": "import pgtasks\napp = pgtasks.App()\nother = pgtasks.App()\nnumber = 5\ndef make(): pass\n",
    "empty.py": "",
    "needs.py": "import not_installed_anywhere\n",
    "broken.py": "def f(:\n",
    "raises.py": "raise ValueError('no \\x1b[2J config')\n",
    "exits.py": "raise SystemExit(3)\n",
    "deep/__init__.py": "",
    "deep/tasks.py": "from pgtasks import App\nclass Holder:\n    app = App()\n",
    "deep/uses.py": "from deep import absent\n",
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder with modules as the current one; what was imported is forgotten afterwards."""
    for name, text in MODULES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize("target", ["shop:app", "deep.tasks:Holder.app"])
def test_an_app_of_the_current_folder_is_found(target: str) -> None:
    """Also as an attribute of an attribute."""
    assert isinstance(load_app(target), App)


@pytest.mark.parametrize(
    ("target", "parts"),
    [
        ("shop", ["not MODULE:APP", "did you mean shop:app?"]),
        ("deep/tasks.py:app", ["did you mean deep.tasks:app?"]),
        ("../evil:app", ["not MODULE:APP"]),
        ("shop:app()", ["not MODULE:APP"]),
        ("a;b:app", ["not MODULE:APP"]),
        (".:app", ["not MODULE:APP"]),
        (".shop:app", ["not MODULE:APP"]),
        ("shpo:app", ["no module 'shpo'", "did you mean 'shop'?"]),
        ("zzz:app", ["no module 'zzz'", "PYTHONPATH"]),
        ("deep.taks:app", ["no module 'taks' in package 'deep'", "did you mean 'deep.tasks'?"]),
        ("shop.tasks:app", ["no module 'tasks'", "'shop'"]),
        ("needs:app", ["'needs' needs 'not_installed_anywhere'", "not installed"]),
        ("broken:app", ["cannot be read", "broken.py, line 1"]),
        ("raises:app", ["ValueError", "raises.py, line 1", "--debug"]),
        ("exits:app", ["SystemExit", "--debug"]),
        ("deep.uses:app", ["ImportError", "absent"]),
        ("empty:app", ["'empty' has no 'app'", "app = pgtasks.App()"]),
        ("shop:ap", ["has no 'ap'", "did you mean 'app'?", "shop:app, shop:other"]),
        ("shop:number", ["shop:number is an int, not a pgtasks.App", "apps there: shop:app"]),
        ("shop:make", ["is a function"]),
        ("deep.tasks:Holder", ["is the class Holder"]),
    ],
)
def test_what_cannot_be_loaded_says_why(target: str, parts: list[str]) -> None:
    """With the likeliest thing that was meant."""
    with pytest.raises(AppImportError) as raised:
        load_app(target)
    for part in parts:
        assert part in str(raised.value)
