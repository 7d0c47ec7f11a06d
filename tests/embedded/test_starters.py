"""Many clients that arrive at once get one server, whatever that is doing at the moment."""

import threading
from pathlib import Path

from pgtasks import embedded
from tests.embedded.processes import end, processes_of, read_line, start_python, wait_until
from tests.embedded.test_killed import CLIENT

STARTERS = 8
ROUNDS = 6


def wait_until_stopping(state_dir: Path, stopper: threading.Thread) -> None:
    """Wait until the thread has asked the server to stop, or has seen it stop."""
    wait_until(lambda: (state_dir / "stop.request").exists() or not stopper.is_alive())


def test_eight_starters_at_once_get_one_server(new_state_dir: Path, bindir: Path | None) -> None:
    """Eight processes on a folder that does not exist yet: one starts, seven join."""
    clients = [start_python(CLIENT, new_state_dir, bindir) for _ in range(STARTERS)]
    answers = [read_line(client).split() for client in clients]
    assert len({server_pid for server_pid, _ in answers}) == 1, answers
    assert sorted(started for _, started in answers) == ["False"] * (STARTERS - 1) + ["True"]
    for client in clients:
        end(client)
    wait_until(lambda: not processes_of(new_state_dir))


def test_a_client_that_arrives_during_a_stop_gets_a_new_server(state_dir: Path, bindir: Path | None) -> None:
    """Neither an error nor the address of a server that is about to vanish."""
    embedded.open_server(state_dir, bindir=bindir, linger_s=600).close()
    for force in [True, False] * (ROUNDS // 2):
        stopper = threading.Thread(target=embedded.stop_server, args=(state_dir,), kwargs={"force": force})
        stopper.start()
        wait_until_stopping(state_dir, stopper)
        with embedded.open_server(state_dir, bindir=bindir, linger_s=600) as lease:
            stopper.join()
            assert lease.started
            assert lease.server.answers()


def test_clients_that_come_and_go_always_get_a_server(state_dir: Path, bindir: Path | None) -> None:
    """Without linger every close races with the next open."""
    failures: list[BaseException] = []

    def come_and_go() -> None:
        try:
            for _ in range(ROUNDS):
                with embedded.open_server(state_dir, bindir=bindir, linger_s=0) as lease:
                    assert lease.server.answers()
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failures.append(error)

    threads = [threading.Thread(target=come_and_go) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
