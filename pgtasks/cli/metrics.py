"""`pgtasks metrics`: export the facts about a database, without running tasks."""

from __future__ import annotations

import signal
import threading
from contextlib import nullcontext
from typing import Annotated

import typer

from pgtasks.cli.database import database, given_dsn
from pgtasks.cli.options import Dsn
from pgtasks.cli.worker import LogFormat, LogLevel, MetricsHost, Pooler, leave
from pgtasks.errors import ConfigError
from pgtasks.settings import PORT_MAX, worker_settings

PORT_DEFAULT = 9187

Port = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        metavar="PORT",
        help=f"Serve /metrics, /livez and /readyz on this port.  [default: {PORT_DEFAULT}]",
    ),
]


def metrics(
    *,
    metrics_port: Port = None,
    metrics_host: MetricsHost = None,
    pooler: Pooler = None,
    log_format: LogFormat = None,
    log_level: LogLevel = None,
    dsn: Dsn = None,
) -> None:
    """Serve facts about the database to Prometheus until SIGTERM or Ctrl-C; port 9187 unless another is given.

    Workers with --metrics-port serve the same facts, beside their own counts; this is for where none has one.
    """
    if metrics_port == 0:
        # A worker's way to have none; here it would serve nothing.
        raise ConfigError(f"--metrics-port must be between 1 and {PORT_MAX}, got 0")
    settings = worker_settings(
        {
            "dsn": given_dsn(dsn),
            "metrics_port": metrics_port,
            "metrics_host": metrics_host,
            "pooler": pooler,
            "log_format": log_format,
            "log_level": log_level,
        }
    )
    from pgtasks import events
    from pgtasks.cli import logs
    from pgtasks.health.server import Answer, HealthServer, verdict
    from pgtasks.metrics.collector import FactsCollector, make_registry, page_of
    from pgtasks.metrics.facts import DatabaseReader, FactsKeeper

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
    logs.configure(settings.log_format, settings.log_level)
    with (
        nullcontext(settings.dsn) if settings.dsn else database(None) as used,
        FactsKeeper(DatabaseReader(used, pooler=settings.pooler)) as keeper,
    ):
        registry = make_registry(FactsCollector(keeper))

        def ready() -> list[str]:
            problem = keeper.known().problem
            return [] if problem is None else [problem]

        pages = {
            "/metrics": lambda accept: Answer(200, *page_of(registry, accept)),
            "/livez": lambda _accept: verdict([]),
            "/readyz": lambda _accept: verdict(ready()),
        }
        with HealthServer(settings.metrics_host, settings.metrics_port or PORT_DEFAULT, pages) as server:
            events.info("metrics served", host=settings.metrics_host, port=server.port)
            threading.Event().wait()
