"""What the scripts of all rivals share leaves the first tasks out of a latency, as we do for ourselves."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from bench.rivals import run
from bench.rivals.rival import SCRIPTS, Command

# A queue in its own memory, whose first 30 tasks say that they were sent ten seconds earlier.
IN_PYTHON = """
import asyncio, contextlib, sys, modes
modes.IDLE_S = 0.01
tasks, sent = asyncio.Queue(), []
async def work(dsn, options, handler, stopping):
    while not stopping.is_set():
        with contextlib.suppress(TimeoutError):
            handler(await asyncio.wait_for(tasks.get(), 0.01))
async def one(payload):
    sent.append(payload)
    tasks.put_nowait(str(float(payload) - 10 * (len(sent) <= 30)))
@contextlib.asynccontextmanager
async def producer(dsn, options):
    yield modes.Producer(one, None)
payload = str
modes.main(sys.modules[__name__])
"""
# Node.js before its version 22 has no such promises.
ON_NODE = """
Promise.withResolvers ??= function () {
  const made = {};
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
  return made;
};
const { main } = await import("./modes.mjs");
let handle, sent = 0;
const work = async (dsn, options, handler, stopping) => { handle = handler; await stopping; };
const one = async (at) => {
  sent += 1;
  handle(Number(at) - (sent <= 30 ? 10 : 0));
};
const producer = async () => ({ one, close: async () => {} });
await main({ work, producer, payload: (task) => task });
"""


def latencies(argv: list[str], script: Path) -> list[float]:
    """Run the latency mode of a script with 5 tasks; gives what it says that it measured."""
    options = json.dumps({"tasks": 5, "every_s": 0.001})
    with run.started(Command([*argv, str(script), "latency", "", options], {"PYTHONPATH": str(SCRIPTS)})) as process:
        found = process.expect("latencies", 15)
        assert found is not None, process.complaint() if process.wait(1) else "it said nothing"
        return list(found["s"])


def test_a_script_in_python_leaves_its_first_tasks_out(tmp_path: Path) -> None:
    """They are slow here, as where a statement is parsed and a cache is empty; all that were asked for are shown."""
    tmp_path.joinpath("slow.py").write_text(IN_PYTHON, encoding="utf-8")
    found = latencies([sys.executable], tmp_path / "slow.py")
    assert len(found) == 5
    assert max(found) < 5


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node.js")
def test_a_script_on_node_leaves_its_first_tasks_out(tmp_path: Path) -> None:
    """They are slow here, as where a statement is parsed and a cache is empty; all that were asked for are shown."""
    tmp_path.joinpath("slow.mjs").write_text(ON_NODE, encoding="utf-8")
    shutil.copy(SCRIPTS / "modes.mjs", tmp_path)
    found = latencies(["node"], tmp_path / "slow.mjs")
    assert len(found) == 5
    assert max(found) < 5
