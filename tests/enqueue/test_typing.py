"""A wrong argument is a type error: mypy says so where, and only where, a line is marked as wrong."""

from pathlib import Path

import pytest
from mypy import api

from tests.database import ROOT

PROGRAM = """
from datetime import timedelta
from pgtasks import App, Context, Enqueued, NewTask

app = App()

@app.task
def add(a: int, b: int = 0) -> int:
    return a + b

@app.task
async def fetch(url: str) -> bytes:
    return url.encode()

@app.task(queue="mail", timeout=timedelta(minutes=1), max_attempts=3)
def send(context: Context, to: str, *, copies: int = 1) -> str:
    return to

@app.task
async def report(context: Context, day: int) -> float:
    return day / 2

async def good() -> None:
    one: Enqueued = add.enqueue(1, b=2)
    two: Enqueued = await add.aenqueue(a=1)
    three: NewTask = send.prepare("me", copies=2)
    four: Enqueued = send.using(delay=5, unique_key="k", on_conflict="raise").enqueue("me")
    number: int = add(1, 2)
    content: bytes = await fetch("x")
    address: str = send("me")
    half: float = await report(3)
    app.enqueue("far", {"a": 1}, priority=3)
    print(app.enqueue_many(add.prepare(n) for n in range(3)).created)

async def bad() -> None:
    add.enqueue("one")  # wrong
    add.enqueue()  # wrong
    add.enqueue(1, c=3)  # wrong
    await add.aenqueue("one")  # wrong
    add.prepare(None)  # wrong
    add.using(queue="q").enqueue("one")  # wrong
    add.using(queue=5).enqueue(1)  # wrong
    add.using(colour="red")  # wrong
    add.using(on_conflict="overwrite")  # wrong
    fetch.enqueue(5)  # wrong
    await fetch.aenqueue()  # wrong
    send.enqueue(5)  # wrong
    send.enqueue("me", copies="two")  # wrong
    send.using(priority=1).enqueue(copies=1)  # wrong
    report.enqueue("today")  # wrong
    text: str = add(1)  # wrong
    address: int = send("me")  # wrong
    number: int = await fetch("x")  # wrong
    half: str = await report(3)  # wrong
    app.enqueue("far", {"a": 1}, prio=3)  # wrong
    app.enqueue_many(["far"])  # wrong
    app.task(queue=5)  # wrong
"""


@pytest.mark.timeout(120)
@pytest.mark.slow
def test_wrong_arguments_are_type_errors(tmp_path: Path) -> None:
    """Positional, by keyword, through using, prepare and the async forms; a Context is not asked for."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    arguments = ["--config-file", str(ROOT / "pyproject.toml"), "--no-error-summary", "--hide-error-context"]
    output, problems, _ = api.run([*arguments, str(path)])
    assert not problems
    found = {int(line.split(":")[1]) for line in output.splitlines() if ": error: " in line}
    wrong = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# wrong")}
    assert found == wrong, output
