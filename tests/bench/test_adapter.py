"""The adapter in bench/adapters speaks the JSON lines that the public harness reads."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import psycopg
import pytest

from tests.access import as_role
from tests.database import ROOT, value
from tests.workers import environment

HARNESS = ROOT / "bench" / "adapters" / "postgresql-job-queue-benchmarking"
ADAPTER = HARNESS / "pgtasks-bench"
MANIFEST: dict[str, Any] = json.loads((ADAPTER / "adapter.json").read_text(encoding="utf-8"))
# As the harness sets them: every metric at each tick.
LATENCIES = {f"{kind}_{share}_ms" for kind in ("claim", "producer", "end_to_end") for share in ("p50", "p95", "p99")}
REQUIRED = {*LATENCIES, "enqueue_rate", "completion_rate", "queue_depth"}
RATE, TICKS = 40, 1


class Run:
    """The adapter as the harness runs it, paced through its standard input."""

    def __init__(self, dsn: str) -> None:
        asked = {"PRODUCER_PACING": "harness", "SAMPLE_EVERY_S": "1", "WORKER_COUNT": "4"}
        env = environment() | {"DATABASE_URL": as_role(dsn, "owner"), **asked}
        self.process = subprocess.Popen(
            [sys.executable, "main.py"], cwd=ADAPTER, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.records: list[dict[str, Any]] = []

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield what it prints, every line of it a JSON object."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.records.append(json.loads(line))
            yield self.records[-1]

    def ask(self, jobs: int) -> None:
        """Ask for jobs, in tokens of ten."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"ENQUEUE 10\n" * (jobs // 10))
        self.process.stdin.flush()


@pytest.mark.pg
@pytest.mark.slow
@pytest.mark.timeout(60)
def test_it_speaks_the_contract(empty_dsn: str) -> None:
    """Descriptor first, then samples at each tick; on SIGTERM it ends well, within five seconds."""
    run = Run(empty_dsn)
    try:
        run.ask(RATE)
        for record in run.read():
            if record.get("metric") == "completion_rate":
                run.ask(RATE)
            if len([each for each in run.records if each.get("metric") == "claim_p99_ms"]) > TICKS:
                break
        began = time.monotonic()
        run.process.send_signal(signal.SIGTERM)
        assert run.process.wait(10) == 0
        assert time.monotonic() - began < 5
    finally:
        run.process.kill()
        run.process.communicate()
    descriptor, *samples = run.records
    assert descriptor.items() >= {"kind": "descriptor", "system": "pgtasks", "instance_id": 0}.items()
    assert set(MANIFEST["event_tables"]) <= set(descriptor["event_tables"])
    assert descriptor["extensions"] == MANIFEST["extensions"]
    assert {"version", "schema_version", "db_name", "started_at"} <= descriptor.keys()
    assert {each["metric"] for each in samples} >= REQUIRED
    for each in samples:
        assert (
            each.items() >= {"kind": "adapter", "subject_kind": "adapter", "subject": "", "system": "pgtasks"}.items()
        )
        # Ticks are those of the wall clock, so that all systems have theirs at once.
        assert datetime.fromisoformat(each["t"]).microsecond < 500_000
        assert each["value"] >= 0
    rates = [each["value"] for each in samples if each["metric"] == "completion_rate"]
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        done = value(connection, "SELECT count(*) FROM pgtasks.history WHERE status = 'completed'")
        for name in (*MANIFEST["event_tables"], *MANIFEST["event_indexes"]):
            assert value(connection, "SELECT to_regclass(%s) IS NOT NULL", name), name
    assert max(rates) > 0
    assert RATE <= sum(rates) <= done * 1.1


@pytest.fixture(scope="module")
def window() -> types.ModuleType:
    """The module of the percentiles, which lives outside of any package."""
    spec = importlib.util.spec_from_file_location("adapter_window", ADAPTER / "window.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_percentiles_of_the_last_seconds(window: types.ModuleType) -> None:
    """To three significant figures; what is older counts no more, and nothing has no percentile."""
    recent = window.Window(30.0)
    assert recent.percentiles(0.5, now=0.0) is None
    recent.add(5_000.0, 0.5)
    for number in range(1, 101):
        recent.add(number + 0.00123, 20.0)
    assert recent.percentiles(0.50, 0.99, 1.0, now=21.0) == [51.0, 100.0, 5_000.0]
    assert recent.percentiles(0.50, 0.99, now=40.0) == [50.0, 99.0]
    assert recent.percentiles(0.50, now=60.0) is None


def test_a_clock_that_stands_still_is_no_error(window: types.ModuleType) -> None:
    """Two readings within a microsecond, or in the wrong order."""
    assert window.rounded(0.0) == window.rounded(-1.0) == 0.001
    assert window.rounded(123.456) == 123.0


def test_it_is_described() -> None:
    """What has to be registered in the harness is on the page beside it."""
    page = (HARNESS / "README.md").read_text(encoding="utf-8")
    for place in ("bench_harness/adapters.py", "bench_harness/versions.py", "init-databases.sql"):
        assert f"`{place}`" in page
    assert MANIFEST["db_name"] in page
    assert not [each.name for each in ADAPTER.iterdir() if each.is_file() and each.name not in page]
