"""A document says which commit was measured, and on what kind of disk."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest

from bench import cpu, database, machine
from pgtasks.embedded import PrivateServer


def git(root: Path, *arguments: str) -> str:
    """Run git in a repository."""
    who = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *who, *arguments], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with a file of each kind."""
    for name in (
        "pgtasks/app.py",
        "migrations/1.sql",
        "bench/scenarios/drain.py",
        "bench/results/drain.json",
        "README",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("first\n", encoding="utf-8")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "mark"),
    [
        ("pgtasks/app.py", "+"),
        ("migrations/1.sql", "+"),
        ("bench/scenarios/drain.py", "+"),
        ("bench/results/drain.json", ""),
        ("README", ""),
        ("pgtasks/new.py", ""),
    ],
)
def test_the_measured_commit_is_named(checkout: Path, name: str, mark: str) -> None:
    """With a mark when a file of it that is measured differs."""
    commit = git(checkout, "rev-parse", "--short", "HEAD")
    assert machine.commit(checkout) == commit
    (checkout / name).write_text("second\n", encoding="utf-8")
    assert machine.commit(checkout) == commit + mark


def test_outside_a_checkout_there_is_no_commit(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor for an archive that was unpacked within somebody else's, nor without git."""
    assert machine.commit(tmp_path_factory.mktemp("plain")) is None
    assert machine.commit(checkout / "pgtasks") is None
    monkeypatch.setenv("PATH", str(checkout))
    assert machine.commit(checkout) is None


def test_the_kind_of_a_folders_disk_is_read(tmp_path: Path) -> None:
    """From the mount that holds it: the longest path, and the last of those that lie on each other."""
    mounts = tmp_path / "mounts"
    lines = [
        "/dev/vda / ext4 rw 0 0",
        "tmpfs /tmp-other tmpfs rw 0 0",
        f"/dev/vdb {tmp_path} xfs rw 0 0",
        rf"tmpfs {tmp_path}/with\040space tmpfs rw 0 0",
        f"/dev/vdc {tmp_path}/twice ext3 rw 0 0",
        f"ramfs {tmp_path}/twice ramfs rw 0 0",
    ]
    mounts.write_text("\n".join(lines), encoding="utf-8")
    expected = {"with space/x": "tmpfs", "twice": "ramfs", "x/y": "xfs", "../other": "ext4"}
    assert {path: machine.filesystem(tmp_path / path, mounts) for path in expected} == expected
    assert machine.filesystem(Path("/"), tmp_path / "none") is None


def test_a_server_in_memory_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be called durable, and every sync would cost nothing; the sentence says what to do."""
    monkeypatch.setattr(machine, "filesystem", lambda _folder: "tmpfs")
    assert machine.disk_folder() == Path(tempfile.gettempdir())
    with pytest.raises(AssertionError, match=r"in memory \(tmpfs\).*set TMPDIR"), database.started():
        pytest.fail("started")


def test_the_measured_server_is_on_a_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not where temporary files go, which is in memory on many systems."""
    where: list[Path | None] = []

    class Stopped(Exception):
        """Nothing more is needed."""

    def made(**given: object) -> PrivateServer:
        where.append(given["parent"] if isinstance(given["parent"], Path) else None)
        raise Stopped

    monkeypatch.setattr(machine, "filesystem", lambda folder: "ext4" if folder == machine.DISK else "tmpfs")
    monkeypatch.setattr(database, "PrivateServer", made)
    with pytest.raises(Stopped), database.started():
        pytest.fail("started")
    assert where == [machine.DISK]
    assert machine.facts()["filesystem"] == "ext4"


def test_a_server_process_that_nobody_saw_has_no_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short run on a busy machine lacks a figure, and does not fail for that; two of a part are no valid run."""
    sampler = cpu.BackendSampler("", "")
    assert sampler.samples("claim") == []
    assert sampler.used_s("claim", 1.0, 2.0) is None
    samples = [cpu.Sample(1.0, 0.5), cpu.Sample(2.0, 1.5)]
    seen = {1: cpu.Backend("claim", samples), 2: cpu.Backend("finish")}
    monkeypatch.setattr(sampler, "_backends", seen)
    assert sampler.samples("claim") == samples
    assert sampler.used_s("claim", 1.0, 1.5) == 0.5
    assert sampler.used_s("finish", 1.0, 1.5) is None
    seen[3] = cpu.Backend("claim")
    with pytest.raises(AssertionError, match="2 server processes for claim"):
        sampler.samples("claim")
