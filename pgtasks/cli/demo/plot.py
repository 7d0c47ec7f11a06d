"""What happens in the demo, step by step, and what is printed at its end."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any

from rich.console import Console

from pgtasks.cli import output, render
from pgtasks.cli.demo import handlers, promises, view
from pgtasks.cli.demo.promises import PERIOD, SLOTS_MIN, TICK, Facts, Killed, Promise, Scheduled, Script
from pgtasks.cli.demo.stage import CHILDREN, Stage, Worker, open_stage
from pgtasks.cli.demo.view import View
from pgtasks.errors import DatabaseUnavailable, PgtasksError
from pgtasks.store import demonstrating, reading, schedule_reading, statements
from pgtasks.store.reading import WorkerRow
from pgtasks.store.session import fetch_all, fetch_one

EMAILS, VIDEOS = 100, CHILDREN
FLAKY_FAILS = 2
VIDEO_S = 2.5
READY_S, RUNNING_S, DONE_S = 20.0, 10.0, 30.0
POLL_S = 0.1
WORKERS_MAX, FIRES_MAX = 1000, 1000
NEXT = (
    ("pgtasks migrate", "set up PGTASKS_DSN, or a local server that stays"),
    ("pgtasks worker MODULE:APP", "run your own handlers; see docs/quickstart.md"),
    ("pgtasks status --watch", "see queues, workers and warnings"),
)


def play(dsn: str | None, *, as_json: bool) -> bool:
    """Play the demo and print its summary; tells whether every promise was kept.

    Raises ConfigError, DatabaseUnavailable or another PgtasksError when it cannot be played.
    """
    began = time.monotonic()
    # A document on standard output has that stream for itself.
    console = render.console(stderr=as_json)
    console.print("Every task below is real, a row in PostgreSQL. This takes some 15 seconds.\n")
    with open_stage(dsn) as stage:
        with view.view_for(console) as shown:
            performance = _Performance(stage, shown)
            performance.run()
        stage.stop()
        facts = performance.facts()
        judged = promises.judge(performance.script, facts)
        # What a broken promise left is worth a look.
        stage.is_kept = not all(promise.kept for promise in judged)
        _tell_logs(console, stage, judged)
    seconds = time.monotonic() - began
    if as_json:
        output.print_json(_document(stage, performance.script, facts, judged, seconds))
    else:
        console.print()
        view.summarize(console, judged, seconds)
        _tell_next(console, stage, own=dsn is not None)
    return all(promise.kept for promise in judged)


class _Performance:
    """One performance."""

    def __init__(self, stage: Stage, shown: View) -> None:
        self._stage, self._view, self._connection = stage, shown, stage.connection
        self.script = Script()
        self._first_id = 0

    def run(self) -> None:
        """Play all steps."""
        self._start_workers()
        # The ids of a queue that nobody else uses start here.
        self._first_id = self._stage.first_id = self._probe_id()
        since = self._make_schedule()
        try:
            self._insert_with_psql()
            self._enqueue_in_transactions()
            self._enqueue_failures()
            self._kill_a_worker()
            self._wait(self._all_finished, DONE_S)
            self._wait(lambda: len(self.facts().fires) >= SLOTS_MIN, DONE_S)
        finally:
            # Whatever happened: in a database that stays, nothing must go on firing.
            self._remove_schedule(since)
        self._wait(self._all_ticked, DONE_S)

    def facts(self) -> Facts:
        """Read what became of the tasks."""
        queue, first = self._stage.queue, max(1, self._first_id)
        tasks = fetch_all(self._connection, demonstrating.tasks(queue, first))
        attempts = fetch_all(self._connection, demonstrating.attempts(queue, first))
        ticks = {task.id: task for task in tasks if task.name == TICK}
        return Facts(
            [task for task in tasks if task.id not in ticks],
            [one for one in attempts if one.task_id not in ticks],
            list(ticks.values()),
            fetch_all(self._connection, schedule_reading.history(queue, limit=FIRES_MAX)),
        )

    def _start_workers(self) -> None:
        self._view.step(f"The database: {self._stage.server}, with our schema in it.")
        self._view.step("Two workers, each a process of its own:")
        self._view.code([" ".join(["pgtasks", *self._stage.worker_command()[:6]]), "--lease 3 --sweep-interval 1"])
        started = [self._stage.start_worker() for _ in range(2)]
        if not self._wait(lambda: len(self._alive()) == len(started), READY_S):
            lines = [line for worker in started for line in worker.last_words()]
            raise PgtasksError("\n".join(["the demo's workers did not start; they said:", *lines]))
        self._view.note(f"both are up: process {started[0].pid} and process {started[1].pid}")

    def _make_schedule(self) -> datetime:
        """Make the schedule, which has the queue's name; gives the moment from which it counts."""
        self._view.step("A cron schedule is a row, too; every worker fires what is due:")
        queue = self._stage.queue
        lines = (
            "INSERT INTO pgtasks.schedules (name, expression, task, queue, missed)",
            f"VALUES ('{queue}', '@every {PERIOD.total_seconds():g}s', '{TICK}', '{queue}', 'all')",
        )
        self._view.code(lines)
        self._stage.psql("\n".join(lines))
        made = fetch_one(self._connection, schedule_reading.schedule(queue))
        if made is None:
            raise PgtasksError("the demo's schedule is gone; somebody else removed it")
        return made.planned_from

    def _remove_schedule(self, since: datetime) -> None:
        fetch_all(self._connection, schedule_reading.remove(self._stage.queue))
        (until,) = fetch_all(self._connection, statements.clock())
        self.script.scheduled = Scheduled(since, until)

    def _insert_with_psql(self) -> None:
        self._view.step("Tasks from plain SQL; any program that can INSERT can enqueue. Through psql:")
        lines = (
            "INSERT INTO pgtasks.tasks (queue, name, payload)",
            f"SELECT '{self._stage.queue}', 'demo.send_email',",
            "    jsonb_build_object('to', 'user' || n || '@example.com')",
            f"FROM generate_series(1, {EMAILS}) AS n",
        )
        self._view.code(lines)
        said = self._stage.psql("\n".join(lines))
        self._view.note(f"psql says {said}")
        self.script.emails = EMAILS

    def _probe_id(self) -> int:
        """Give an id below those of all tasks to come: that of a task which is rolled back."""
        return self._roll_back(lambda: handlers.send_email.using(**self._here()).enqueue("nobody").id)

    def _enqueue_in_transactions(self) -> None:
        self._view.step("Tasks from Python, as part of a transaction. One commits, one rolls back:")
        self._view.code(
            [
                "with connection.transaction():",
                "    send_receipt.using(connection=connection).enqueue(order=1)",
            ]
        )
        with self._connection.transaction():
            self.script.receipt = handlers.send_receipt.using(**self._here()).enqueue(order=1).id
        self.script.rolled_back = self._roll_back(
            lambda: handlers.send_receipt.using(**self._here()).enqueue(order=2).id
        )
        self._view.note(f"task {self.script.receipt} is committed, task {self.script.rolled_back} is rolled back")

    def _enqueue_failures(self) -> None:
        self._view.step("One that fails twice before it works, and one that no retry can help:")
        self.script.flaky = handlers.charge_card.using(**self._here()).enqueue(fails=FLAKY_FAILS).id
        self.script.flaky_fails = FLAKY_FAILS
        self.script.hopeless = handlers.import_file.using(**self._here()).enqueue("holiday.jpg").id
        self._wait(self._all_finished, DONE_S)
        facts = self.facts()
        for id in (self.script.flaky, self.script.hopeless):
            row = facts.task(id)
            if row is not None:
                self._view.note(
                    f"task {id}: {row.status} in attempt {row.attempt}{f', {row.error}' if row.error else ''}"
                )

    def _kill_a_worker(self) -> None:
        self._view.step(f"{VIDEOS} long ones, {VIDEO_S:g} s each, and in the middle of them a crash:")
        with self._connection.transaction():
            video = handlers.render_video.using(**self._here())
            self.script.videos = [video.enqueue(VIDEO_S).id for _ in range(VIDEOS)]
        self._wait(lambda: len(self._running_videos()) == VIDEOS, RUNNING_S)
        running = self._running_videos()
        if not running:
            return
        ((worker_id, _),) = Counter(running.values()).most_common(1)
        victim = self._process_of(worker_id)
        if victim is None:
            return
        task_ids = tuple(id for id, worker in running.items() if worker == worker_id)
        self._view.code([f"kill -9 {victim.pid}"])
        at = fetch_one(self._connection, statements.clock())
        if at is None:
            raise DatabaseUnavailable("the database's clock could not be read")
        os.kill(victim.pid, signal.SIGKILL)
        victim.process.wait()
        self.script.killed = Killed(worker_id, victim.pid, at, task_ids)
        self._view.note(f"process {victim.pid} died with {len(task_ids)} tasks in its hands; when their lease ends,")
        self._view.note(f"{promises.LEASE_S:g} s after its last heartbeat, the other worker takes them over")

    def _here(self) -> dict[str, Any]:
        return {"queue": self._stage.queue, "connection": self._connection}

    def _roll_back(self, enqueue: Callable[[], int]) -> int:
        """Enqueue in a transaction that is rolled back; gives the id of the task that never was."""
        with self._connection.transaction(force_rollback=True):
            return enqueue()

    def _running_videos(self) -> dict[int, Any]:
        """Give the running long tasks and who runs them."""
        return {
            task.id: task.worker
            for task in self.facts().named("demo.render_video")
            if task.status == "running" and task.worker is not None
        }

    def _process_of(self, worker_id: object) -> Worker | None:
        """Give the process of a worker, whose name ends in its process id."""
        pids = {row.name.rpartition(":")[2] for row in self._workers() if row.id == worker_id}
        return next((one for one in self._stage.workers if str(one.pid) in pids), None)

    def _workers(self) -> list[WorkerRow]:
        rows = fetch_all(self._connection, reading.workers(limit=WORKERS_MAX))
        return [row for row in rows if self._stage.queue in row.queues]

    def _alive(self) -> list[WorkerRow]:
        return [row for row in self._workers() if row.alive]

    def _all_finished(self) -> bool:
        counts = self.facts().by_status()
        return counts["completed"] + counts["dead"] >= self.script.inserted

    def _all_ticked(self) -> bool:
        return all(tick.status == "completed" for tick in self.facts().ticks)

    def _wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Show the board until the condition holds, or time is up, or no worker is left."""
        until = time.monotonic() + timeout_s
        while time.monotonic() < until and any(worker.running for worker in self._stage.workers):
            holds = condition()
            if self._first_id:
                facts = self.facts()
                self._view.board([*facts.tasks, *facts.ticks], self._workers())
            if holds:
                return True
            time.sleep(POLL_S)
        return False


def _tell_logs(console: Console, stage: Stage, judged: list[Promise]) -> None:
    """Show what the workers said, if a promise was broken: it may say why."""
    if all(promise.kept for promise in judged):
        return
    for worker in stage.workers:
        console.print(f"\nThe last words of worker {worker.pid}:")
        for line in worker.last_words():
            console.print(render.safe(f"  {line}", "dim"))


def _tell_next(console: Console, stage: Stage, *, own: bool) -> None:
    if own and stage.is_kept:
        console.print(
            f"The tasks are still there, in the queue {stage.queue}: pgtasks tasks list --queue {stage.queue}"
        )
    elif own:
        console.print(f"Its tasks, in the queue {stage.queue}, are deleted; its handlers' names stay registered.")
    console.print("\nYour turn:")
    for command, meaning in NEXT:
        console.print(f"  {command:27}{meaning}")


def _document(stage: Stage, script: Script, facts: Facts, judged: list[Promise], seconds: float) -> dict[str, Any]:
    counts, killed = facts.by_status(), script.killed
    recovery_s = promises.recovery_s(script, facts)
    return {
        "ok": all(promise.kept for promise in judged),
        "seconds": round(seconds, 2),
        "queue": stage.queue,
        "tasks": {"inserted": script.inserted, "rows": len(facts.tasks), **dict(sorted(counts.items()))},
        "failed_attempts": dict(sorted(Counter(one.outcome for one in facts.attempts).items())),
        "dead_letters": counts["dead"],
        "killed": None
        if killed is None
        else {"worker": killed.worker, "pid": killed.pid, "tasks": len(killed.task_ids)},
        "recovery_s": None if recovery_s is None else round(recovery_s, 3),
        "schedule": {"period_s": PERIOD.total_seconds(), "fires": len(facts.fires), "tasks": len(facts.ticks)},
        "promises": judged,
    }
