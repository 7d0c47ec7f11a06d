"""`pgtasks worker`: run an app's tasks until a signal says stop."""

from __future__ import annotations

import os
import signal
from dataclasses import MISSING, fields
from typing import Annotated, Any, NoReturn

import typer

from pgtasks.cli.database import given_dsn, given_listen_dsn
from pgtasks.cli.exits import INTERRUPTED, OK, Terminated
from pgtasks.cli.options import Dsn, duration
from pgtasks.settings import QueueSlots, WorkerSettings, flag_of, worker_settings

# How long threads that handlers left behind may keep the process after all is done.
EXIT_S = 0.3


def _option(setting: str, metavar: str | None = None) -> Any:
    """Give the option for a setting, with the help, flag and default that settings.py has for it."""
    (found,) = (one for one in fields(WorkerSettings) if one.name == setting)
    text = found.metadata["help"]
    default = f"{found.default:g}" if isinstance(found.default, float) else str(found.default)
    if found.default is MISSING:
        default = "the number of cores, at least 4"
    ending = "" if isinstance(found.default, bool) else f"  [default: {default}]"
    if not isinstance(found.default, str):  # those begin with a value to type, in lower case
        text = text[:1].upper() + text[1:]
    return typer.Option(flag_of(setting), metavar=metavar, help=f"{text}.{ending}")


AppName = Annotated[str, typer.Argument(metavar="MODULE:APP", help="The app, such as myproject.tasks:app.")]
Queues = Annotated[
    list[str] | None,
    typer.Option(
        "--queue",
        "-q",
        metavar="QUEUE[:SLOTS]",
        help="Serve this queue, with at most SLOTS of its tasks at once; may be repeated.  [default: `default`, and "
        "the queues that the app's tasks name]",
    ),
]
Concurrency = Annotated[int | None, _option("concurrency", "N")]
Children = Annotated[int | None, _option("children", "N")]
ChildMemory = Annotated[int | None, _option("child_memory_mib", "MIB")]
ChildMaxTasks = Annotated[int | None, _option("child_max_tasks", "N")]
Processes = Annotated[int | None, _option("processes", "N")]
StuckMax = Annotated[
    int | None,
    typer.Option(
        "--stuck-max",
        metavar="N",
        help="Stuck handlers with which the worker starts afresh, 0 for never.  [default: half of --concurrency]",
    ),
]
Lease = Annotated[float | None, _option("lease_s", "S")]
SweepInterval = Annotated[float | None, _option("sweep_interval_s", "S")]
Keep = Annotated[
    str | None,
    typer.Option(
        "--keep",
        metavar="TIME",
        help="How long history and failed attempts are kept, as in 7d or 12h; 0 for ever.  [default: 7d]",
    ),
]
SafetyPoll = Annotated[float | None, _option("safety_poll_s", "S")]
ShutdownGrace = Annotated[float | None, _option("shutdown_grace_s", "S")]
Pooler = Annotated[str | None, _option("pooler", "KIND")]
ListenDsn = Annotated[
    str | None,
    typer.Option(
        "--listen-dsn",
        metavar="DSN",
        help="Direct connection string for LISTEN, where the other one leads through a pooler; PGTASKS_LISTEN_DSN when "
        "not given.",
    ),
]
UseScheduler = Annotated[
    bool | None,
    typer.Option("--scheduler/--no-scheduler", help="Fire cron schedules that are due.  [default: fire them]"),
]
MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        metavar="PORT",
        help="Serve /metrics, /livez and /readyz on this port, 0 for none; with --processes N each worker takes the "
        "next one.  [default: 0]",
    ),
]
MetricsHost = Annotated[
    str | None,
    typer.Option(
        "--metrics-host",
        metavar="ADDRESS",
        help="Address of that port; 0.0.0.0 for all, where nobody else can reach it.  [default: 127.0.0.1]",
    ),
]
Drain = Annotated[bool | None, _option("drain")]
LogFormat = Annotated[str | None, _option("log_format", "FORMAT")]
LogLevel = Annotated[str | None, _option("log_level", "LEVEL")]


def worker(
    app: AppName,
    *,
    queues: Queues = None,
    concurrency: Concurrency = None,
    processes: Processes = None,
    children: Children = None,
    child_memory_mib: ChildMemory = None,
    child_max_tasks: ChildMaxTasks = None,
    stuck_max: StuckMax = None,
    lease_s: Lease = None,
    sweep_interval_s: SweepInterval = None,
    keep: Keep = None,
    safety_poll_s: SafetyPoll = None,
    shutdown_grace_s: ShutdownGrace = None,
    pooler: Pooler = None,
    listen_dsn: ListenDsn = None,
    scheduler: UseScheduler = None,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = None,
    drain: Drain = None,
    log_format: LogFormat = None,
    log_level: LogLevel = None,
    dsn: Dsn = None,
) -> None:
    """Run an app's tasks until SIGTERM or Ctrl-C.

    Every option can also be set in the environment; docs/settings.md names the variables.
    """
    # Those that are taken as they are have the settings' names.
    flags: dict[str, Any] = dict(locals())
    from pgtasks.engine.rebirth import Rebirth
    from pgtasks.engine.supervised import Supervision
    from pgtasks.health.systemd import Systemd

    rebirth, supervision = Rebirth(os.environ), Supervision.take(os.environ)
    systemd = Systemd.take(os.environ)
    flags |= {
        "dsn": given_dsn(dsn, notes=supervision is None),
        "queues": tuple(map(QueueSlots.parse, queues)) if queues else None,
        "keep_s": None if keep is None else duration(keep, "--keep"),
        "listen_dsn": given_listen_dsn(listen_dsn, notes=supervision is None),
    }
    settings = worker_settings(flags)
    if settings.processes > 1 and supervision is None:
        from pgtasks.cli import supervisor

        raise typer.Exit(supervisor.supervise(settings, systemd))
    end_on_signals()
    rebirth.ready()
    from pgtasks.cli.working import leave_within, work

    try:
        code = work(app, settings, supervision, rebirth, systemd)
    except (Terminated, KeyboardInterrupt) as end:
        # Perhaps one that was about to start again, because of handlers that do not end.
        leave_within(EXIT_S, OK if isinstance(end, Terminated) else INTERRUPTED)
        raise
    leave_within(EXIT_S, code)
    raise typer.Exit(code)


def end_on_signals() -> None:
    """End the program on signals while no worker listens to them; as process 1 of a container nothing else would."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)


def leave(_number: int, _frame: object) -> NoReturn:
    """End the program that has not begun its work, or begins again; a signal handler."""
    raise Terminated(0)
