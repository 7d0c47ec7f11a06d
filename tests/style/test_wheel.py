"""What is published works away from the checkout."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.style.checkout import ROOT, name, schema_sql, sql_files, tracked_files

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

NOT_SHIPPED = {".gitignore", "PKG-INFO"}


def run(*command: str | Path, cwd: Path, **env: str) -> str:
    """Run a command and return what it printed; its errors are in the message of a failure."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.args}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the unpacked source archive."""
    folder = tmp_path_factory.mktemp("sdist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=ROOT)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        archive.extractall(folder)  # noqa: S202 - the filter above refuses odd members
    return next(path for path in folder.iterdir() if path.is_dir())


@pytest.fixture(scope="module")
def site(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the wheel installed, built from the source archive as pip would."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=sdist)
    wheel = next(folder.glob("*.whl"))
    install = ["-m", "pip", "install", "--no-deps", "--no-index", "--target", "site"]
    run(sys.executable, *install, wheel, cwd=folder)
    return folder / "site"


def test_the_source_archive_is_complete(sdist: Path) -> None:
    """Tests, documentation, benchmarks and `./dev` are in it."""
    shipped = {str(path.relative_to(sdist)) for path in sdist.rglob("*") if path.is_file()}
    tracked = {name(path) for path in tracked_files()} - NOT_SHIPPED
    assert tracked - shipped == set()


def test_the_wheel_holds_every_query_and_migration(site: Path, tmp_path: Path) -> None:
    """They are found as resources of the installed package."""
    code = (
        "import importlib.resources as r; root = r.files('pgtasks'); print(root); "
        "print(*sorted(p.name for p in (root / 'sql').iterdir() if p.name.endswith('.sql'))); "
        "print(*sorted(p.name for p in (root / 'migrations' / 'versions').iterdir()))"
    )
    printed = run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(site))
    package, queries, revisions = printed.splitlines()
    assert Path(package) == site / "pgtasks"
    assert queries.split() == [path.name for path in sql_files()]
    ours = [path for path in (ROOT / "migrations" / "versions").iterdir() if path.is_file()]
    assert {path.name for path in ours} - {*revisions.split()} == set()
    assert (site / "pgtasks" / "py.typed").is_file()


def test_the_wheel_is_nothing_but_the_package(site: Path) -> None:
    """No tests, no documentation, no file of a tool."""
    folders = {path.name for path in site.iterdir()} - {"bin", "pgtasks"}
    assert [folder for folder in folders if not folder.endswith(".dist-info")] == []


def test_the_installed_command_says_its_version(site: Path, tmp_path: Path) -> None:
    """`pgtasks --version` runs from any folder."""
    said = run(site / "bin" / "pgtasks", "--version", cwd=tmp_path, PYTHONPATH=str(site))
    assert "0.1.0" in said


def test_the_installed_command_prints_the_migrations(site: Path, tmp_path: Path) -> None:
    """`pgtasks migrate --sql` needs no server, only the files of the wheel."""
    script = run(site / "bin" / "pgtasks", "migrate", "--sql", cwd=tmp_path, PYTHONPATH=str(site))
    assert "CREATE TABLE pgtasks.tasks" in schema_sql()
    assert "CREATE TABLE pgtasks.tasks" in script
