"""What a supervisor hands to its workers, and what becomes of it there."""

import asyncio
import os
import socket
import subprocess
import uuid
from typing import Any

import pytest

from pgtasks.cli.supervisor import environment, without_processes
from pgtasks.engine.departure import StopSwitch
from pgtasks.engine.supervised import VARIABLE, Greeting, Supervision
from pgtasks.errors import ConfigError
from pgtasks.settings import worker_settings
from tests import workers

SOME_ID = uuid.UUID(int=1)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("worker m:app --processes 2 --lease 5", "worker m:app --lease 5"),
        ("worker m:app --processes=2", "worker m:app"),
        ("--debug worker --processes 2 m:app -q a -q b:2", "--debug worker m:app -q a -q b:2"),
        ("worker m:app", "worker m:app"),
    ],
)
def test_the_command_line_is_the_same_without_processes(given: str, expected: str) -> None:
    """Every other word stays as it is."""
    assert without_processes(given.split()) == expected.split()


def test_the_environment_is_the_same_without_processes() -> None:
    """Nothing else is taken away."""
    assert environment({"PGTASKS_PROCESSES": "2", "PGTASKS_LEASE": "5"}) == {"PGTASKS_LEASE": "5"}


def test_what_is_internal_is_gone_before_a_handler_can_see_it() -> None:
    """The variable is taken out, and the line does not go on to programs that a handler runs."""
    ours, theirs = socket.socketpair()
    os.set_inheritable(theirs.fileno(), True)  # noqa: FBT003 - takes it by position only
    worker_id = uuid.uuid4()
    environ = {VARIABLE: f"{theirs.detach()}:{worker_id}:1", "OTHER": "x"}
    supervision = Supervision.take(environ)
    assert supervision is not None
    assert (supervision.worker_id, supervision.place) == (worker_id, 1)
    assert environ == {"OTHER": "x"}
    supervision.greet(Greeting("host=db password='x y'", local=False))
    assert Greeting.read(ours.recv(1000)) == Greeting("host=db password='x y'", local=False)
    assert not os.get_inheritable(supervision.line.fileno())
    for end in (ours, supervision.line):
        end.close()


@pytest.mark.parametrize("text", ["", "x", "3", "3:x", f"99999:{SOME_ID}:0", f"0:{SOME_ID}:0", f"0:{SOME_ID}"])
def test_what_makes_no_sense_means_that_nobody_supervises(text: str) -> None:
    """A copy of the variable in another process, say."""
    environ = {VARIABLE: text}
    assert Supervision.take(environ) is None
    assert not environ


async def test_a_signal_that_came_both_ways_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An init system sends it to all processes, and the supervisor passes it on."""
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    switch = StopSwitch()
    found = []
    for forwarded in (False, True, True, False, False):
        switch.on_signal(15, forwarded=forwarded)
        found.append((switch.asked.is_set(), switch.interrupted, list(ended)))
    assert found == [
        (True, False, []),
        (True, False, []),
        (True, True, []),
        (True, True, []),
        (True, True, [130]),
    ]


@pytest.mark.parametrize(("sent", "interrupted"), [(b"\x0f", False), (b"\x0f\x02", True), (b"", False)])
async def test_the_line_stops_a_worker_by_a_signal_or_by_its_end(sent: bytes, *, interrupted: bool) -> None:
    """The end of the line is no signal: the worker drains, with all its grace time."""
    ours, theirs = socket.socketpair()
    switch = StopSwitch()
    with theirs:
        Supervision(uuid.uuid4(), theirs).heed(switch)
        with ours:
            ours.sendall(sent)
        await switch.asked.wait()
        assert switch.interrupted == interrupted
        asyncio.get_running_loop().remove_reader(theirs)


@pytest.mark.parametrize("value", ["0", "-1", "257", "two", "1.5"])
def test_a_wrong_number_is_refused(value: str) -> None:
    """With the name that was written, and the range."""
    with pytest.raises(ConfigError, match="PGTASKS_PROCESSES"):
        worker_settings({}, {"PGTASKS_PROCESSES": value})
    if value.lstrip("-").isdigit():
        with pytest.raises(ConfigError, match="--processes must be between 1 and 256"):
            worker_settings({"processes": int(value)}, {})


def test_one_process_is_the_worker_itself() -> None:
    """With --processes 1, also against PGTASKS_PROCESSES, the worker's own error comes from this process."""
    done = run("worker", "no.such:app", "--processes=1", PGTASKS_PROCESSES="2")
    assert done.returncode == 2
    assert "supervisor" not in done.stderr


def test_what_is_wrong_with_the_app_is_said_once_and_ends_all() -> None:
    """The exit code is the worker's own."""
    done = run("worker", "no.such:app", PGTASKS_PROCESSES="4")
    assert done.returncode == 2
    assert done.stderr.count("no module") == 1
    assert done.stderr.count("worker process started") == 1


def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run pgtasks to its end."""
    env: dict[str, Any] = workers.environment(None, **variables)
    return subprocess.run([workers.program(), *words], env=env, capture_output=True, text=True, timeout=20, check=False)
