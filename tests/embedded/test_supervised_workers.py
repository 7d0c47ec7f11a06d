"""The local server under `pgtasks worker --processes`: the supervisor uses it too, and nothing stays behind."""

import os
import signal
import subprocess
import tempfile
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it ships without types
import pytest

from tests.database import wait_until
from tests.workers import environment, program, start

pytestmark = pytest.mark.slow


def test_the_server_is_held_while_no_worker_lives(new_state_dir: Path) -> None:
    """Both workers are killed at once, their successors find the same server, and all ends with SIGTERM."""
    env = environment(None, PGTASKS_EMBEDDED_DIR=str(new_state_dir))
    subprocess.run([program(), "migrate"], env=env, check=True, capture_output=True)
    with tempfile.NamedTemporaryFile() as log:

        def output() -> str:
            return Path(log.name).read_text(encoding="utf-8")

        def wait_begun(count: int) -> list[psutil.Process]:
            wait_until(lambda: output().count("worker started") >= count, 30, hint=output)
            return list(psutil.Process(process.pid).children())

        process = start([program(), "worker", "tests.apps.basic:app", "--processes=2"], env, log.fileno())
        try:
            workers = wait_begun(2)
            held = [file.path for file in psutil.Process(process.pid).open_files()]
            assert str(new_state_dir / "clients.lock") in held
            server = (new_state_dir / "server.json").read_text(encoding="utf-8")
            for worker in workers:
                os.kill(worker.pid, signal.SIGKILL)
            successors = wait_begun(4)
            assert (new_state_dir / "server.json").read_text(encoding="utf-8") == server
            process.terminate()
            assert process.wait(30) == 0, output()
            assert not any(one.is_running() for one in successors)
        finally:
            process.kill()
            process.wait()
        assert output().count("using the local PostgreSQL") == 1
