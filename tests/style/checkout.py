"""What the style tests look at: the files of the checkout, and the functions in them."""

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON_PLACES = ("pgtasks", "tests", "bench", "examples", "migrations")
MADE_BY_TOOLS = {".venv", ".pg", ".git", "__pycache__", "dist", "build"}


@dataclass(frozen=True)
class Function:
    """One function of ours: where it stands and how many lines it takes, docstring included."""

    place: str
    lines: int


def python_files(*places: str) -> list[Path]:
    """Return our Python files below some places of the checkout, `dev` among them by default."""
    wanted = places or PYTHON_PLACES
    found = [path for place in wanted for path in sorted((ROOT / place).rglob("*.py"))]
    return found if places else [*found, ROOT / "dev"]


def sql_files() -> list[Path]:
    """Return the files with one query each."""
    return sorted((ROOT / "pgtasks" / "sql").glob("*.sql"))


def schema_sql() -> str:
    """Return the text of all migrations that lead up, in their order."""
    upgrades = sorted((ROOT / "migrations" / "versions").glob("*.up.sql"))
    return "\n".join(path.read_text(encoding="utf-8") for path in upgrades)


def tracked_files() -> list[Path]:
    """Return the files that belong to the repository, or would if they were added."""
    # The checkout may belong to somebody else, which git refuses to look at by default.
    git = ["git", "-C", str(ROOT), "-c", f"safe.directory={ROOT}"]
    command = [*git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:  # an unpacked source archive is no repository
        paths = [path for path in ROOT.rglob("*") if not MADE_BY_TOOLS & set(path.parts)]
    return [path for path in paths if path.is_file()]


def functions(paths: list[Path]) -> Iterator[Function]:
    """Yield every function and method, nested ones too."""
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                place = f"{name(path)}:{node.lineno} {node.name}"
                yield Function(place, (node.end_lineno or node.lineno) - node.lineno + 1)


def name(path: Path) -> str:
    """Return a path as a person in the checkout writes it."""
    return str(path.relative_to(ROOT))
