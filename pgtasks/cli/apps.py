"""Loading the app that MODULE:APP names.

The current folder comes first on the module search path, as with `python -m`, so that
`pgtasks worker myapp:app` works from the folder that holds myapp.py. Importing runs that
module's code: name only what you trust.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import sys
from types import ModuleType

from pgtasks.app import App
from pgtasks.cli.exits import Terminated
from pgtasks.cli.options import did_you_mean
from pgtasks.errors import AppImportError

_FORM = re.compile(r"\w+(?:\.\w+)*:\w+(?:\.\w+)*")


def load_app(target: str) -> App:
    """Import the module and give its app; raises AppImportError, which says what to write instead."""
    if not _FORM.fullmatch(target):
        hint = _from_path(target)
        raise AppImportError(f"{target!r} is not MODULE:APP — such as myproject.tasks:app{hint}")
    module_name, _, path = target.partition(":")
    here = str(os.getcwd())  # noqa: PTH109 - a string for sys.path
    if here not in sys.path:
        sys.path.insert(0, here)
    module = _import(module_name)
    return _app(module, path)


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing and (name == missing or name.startswith(f"{missing}.")):
            raise _no_module(name, missing) from error
        raise AppImportError(
            f"module {name!r} needs {missing!r}, which is not installed in this Python ({sys.prefix})"
        ) from error
    except SyntaxError as error:
        raise AppImportError(
            f"module {name!r} cannot be read: {error.msg} ({error.filename}, line {error.lineno})"
        ) from error
    except Terminated:
        raise
    except (Exception, SystemExit) as error:
        where = _raised_at(error)
        raise AppImportError(
            f"importing module {name!r} failed: {type(error).__name__}: {error}{where}"
            f" — `pgtasks --debug …` shows the traceback"
        ) from error


def _no_module(name: str, missing: str) -> AppImportError:
    parent, _, last = missing.rpartition(".")
    siblings = [f"{parent}.{found}" if parent else found for found in _modules_in(parent)]
    hint = did_you_mean(missing, siblings)
    place = f"package {parent!r}" if parent else f"this folder ({os.getcwd()}) or among installed packages"  # noqa: PTH109 - shown as text
    if not hint and not parent:
        hint = " — run pgtasks from the folder that holds it, or set PYTHONPATH"
    return AppImportError(f"no module {last or name!r} in {place}{hint}")


def _modules_in(package: str) -> list[str]:
    """Name the modules that could have been meant: those beside the missing one."""
    try:
        paths = list(importlib.import_module(package).__path__) if package else [os.getcwd()]  # noqa: PTH109 - a string for pkgutil
    except (ImportError, AttributeError):
        return []
    return [found.name for found in pkgutil.iter_modules(paths)]


def _raised_at(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f" ({trace.tb_frame.f_code.co_filename}, line {trace.tb_lineno})" if trace is not None else ""


def _app(module: ModuleType, path: str) -> App:
    found: object = module
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise _no_app(module, f"module {module.__name__!r} has no {path!r}", path) from None
    if not isinstance(found, App):
        raise _no_app(module, f"{module.__name__}:{path} is {_article(found)}, not a pgtasks.App", path)
    return found


def _no_app(module: ModuleType, problem: str, path: str) -> AppImportError:
    apps = sorted(name for name, value in vars(module).items() if isinstance(value, App))
    if not apps:
        return AppImportError(f"{problem} — it holds no app; write one: app = pgtasks.App()")
    named = ", ".join(f"{module.__name__}:{name}" for name in apps)
    return AppImportError(f"{problem}{did_you_mean(path, apps)} — apps there: {named}")


def _article(value: object) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, ModuleType):
        return "a module"
    kind = type(value).__name__
    return f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"


def _from_path(target: str) -> str:
    """Give what was meant by a file's path: myproject/tasks.py:app."""
    path, _, attribute = target.partition(":")
    meant = path.removeprefix("./").removesuffix(".py").replace("/", ".")
    candidate = f"{meant}:{attribute or 'app'}"
    return f"; did you mean {candidate}?" if _FORM.fullmatch(candidate) else ""
