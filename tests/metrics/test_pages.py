"""The metrics page of a real worker, of many workers, and of the exporter."""

import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from itertools import pairwise

import psutil  # type: ignore[import-untyped]  # it ships without types
import pytest

from tests.access import role_of
from tests.database import Connection, rows, value, wait_until
from tests.scraping import free_ports, get, scrape
from tests.workers import WorkerProcess, environment, program

pytestmark = [pytest.mark.pg, pytest.mark.timeout(60)]

FINISHED = "pgtasks_tasks_finished_total name=greet outcome=completed"
FACTS_AGE = "pgtasks_facts_age_seconds"
FACTS_SESSION = "FROM pg_stat_activity WHERE application_name LIKE 'pgtasks/metrics%' AND datname = current_database()"


def test_the_page_of_a_worker_changes_as_tasks_run(dsn: str, connection: Connection) -> None:
    """Every metric is on it; twenty scrapes cost one reading of the facts, on one connection."""
    port = free_ports()
    with WorkerProcess("examples.hello:app", dsn, "--metrics-port", str(port)) as worker:
        worker.wait_ready()
        before = scrape(port)
        assert before[FINISHED] == 0
        rows(connection, "SELECT pgtasks.enqueue('greet') FROM generate_series(1, 5)")
        rows(connection, "SELECT pgtasks.enqueue('flaky', '{\"fails\": 1}')")
        wait_until(lambda: scrape(port)[FINISHED] == 5)
        wait_until(lambda: scrape(port)["pgtasks_tasks_finished_total name=flaky outcome=retried"] == 1)
        pages = [scrape(port) for _ in range(20)]
        # They may happen to be on both sides of one reading.
        assert sum(later[FACTS_AGE] < page[FACTS_AGE] for page, later in pairwise(pages)) <= 1
        assert value(connection, f"SELECT count(*) {FACTS_SESSION}") == 1
        page = pages[-1]
        assert page["pgtasks_tasks_claimed_total queue=default"] >= 6
        assert page["pgtasks_task_wait_seconds_count queue=default"] >= 6
        assert page["pgtasks_task_duration_seconds_sum name=greet"] >= 5 * 0.05
        assert page["pgtasks_slots state=free"] == 100
        assert page["pgtasks_heartbeats_total"] >= 1
        assert page["pgtasks_queue_workers queue=default"] == 1
        assert page["pgtasks_loop_lag_seconds loop=handlers"] < 10
        assert get(port, "/metrics").content_type.startswith("text/plain")
        worker.terminate()
        assert worker.wait() == 0


def test_each_of_several_processes_has_a_port_of_its_own(dsn: str) -> None:
    """The next ones; a worker that follows a dead one has the same."""
    port = free_ports(2)
    with WorkerProcess("examples.hello:app", dsn, "--processes", "2", "--metrics-port", str(port)) as supervisor:
        wait_until(lambda: all(get(port + place, "/readyz").status == 200 for place in range(2)), 20)
        first = get(port, "/metrics").text
        assert first != get(port + 1, "/metrics").text
        (line,) = [line for line in first.splitlines() if line.startswith("pgtasks_worker_info{")]
        psutil.Process(int(line.partition('worker="')[2].partition('"')[0].rpartition(":")[2])).kill()
        wait_until(lambda: get(port, "/readyz").status == 200 and line not in get(port, "/metrics").text, 20)
        supervisor.terminate()
        assert supervisor.wait() == 0


def test_the_exporter_tells_the_same_facts_without_an_app(dsn: str, connection: Connection) -> None:
    """Twice, to see that max over instances is right; it stops when told to."""
    rows(connection, "SELECT pgtasks.enqueue('a', queue => 'mails') FROM generate_series(1, 3)")
    ports = [free_ports(), free_ports()]
    with ExitStack() as stack:
        made = [
            stack.enter_context(
                subprocess.Popen(
                    [program(), "metrics", "--metrics-port", str(port)],
                    env=environment(dsn, "reader"),
                    stderr=subprocess.DEVNULL,
                )
            )
            for port in ports
        ]
        for exporter in made:
            stack.callback(exporter.kill)
        for port in ports:
            wait_until(lambda port=port: get(port, "/readyz").status == 200, 20)  # type: ignore[misc]  # bound here and now
            assert scrape(port)["pgtasks_queue_tasks queue=mails status=queued"] == 3
            assert get(port, "/livez").status == 200
        made[0].terminate()
        assert made[0].wait(10) == 0
        made[1].send_signal(signal.SIGINT)
        assert made[1].wait(10) == 130


@pytest.mark.parametrize(
    "command",
    [["worker", "examples.hello:app"], ["worker", "examples.hello:app", "--processes=2"], ["metrics"]],
    ids=["worker", "supervisor", "metrics"],
)
def test_a_port_that_is_taken_is_a_clear_error(dsn: str, connection: Connection, command: list[str]) -> None:
    """Before anything is registered or claimed."""
    port = free_ports()
    with ExitStack() as stack:
        taken = stack.enter_context(socket.socket())
        taken.bind(("127.0.0.1", port))
        taken.listen()
        done = subprocess.run(
            [program(), *command, "--metrics-port", str(port)],
            env=environment(dsn, role_of(command)),
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
    assert done.returncode == 2
    assert f"error: cannot listen on 127.0.0.1 port {port}: Address already in use" in done.stderr
    assert "--metrics-port" in done.stderr
    assert value(connection, "SELECT count(*) FROM pgtasks.workers") == 0


def test_a_worker_without_a_port_loads_no_client_and_no_server() -> None:
    """They cost every start a tenth of a second."""
    code = (
        "import sys, pgtasks.cli.working as w; from pgtasks.health.systemd import Systemd;"
        "from pgtasks.settings import WorkerSettings as S\n"
        "with w.watching(S(), Systemd(), 0) as ops: assert ops is None\n"
        "print(*[name for name in ('prometheus_client', 'http.server') if name in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []
