"""`pgtasks schedules`: cron schedules, those of the code and those that people make."""

from __future__ import annotations

from typing import Annotated

import typer

from pgtasks.cli import options
from pgtasks.cli.database import connected
from pgtasks.errors import ConfigError

LIMIT_DEFAULT = 1000
LIMIT_MAX = 10_000
HISTORY_LIMIT_DEFAULT = 50
BACKFILL_LIMIT_DEFAULT = 1000
BACKFILL_LIMIT_MAX = 1_000_000
FIRES_DEFAULT = 10
FIRES_MAX = 1000

commands = typer.Typer(
    help="List, make, pause, run and backfill cron schedules.", no_args_is_help=True, rich_markup_mode=None
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule.", show_default=False)]
Names = Annotated[list[str], typer.Argument(metavar="NAME…", help="The schedules.", show_default=False)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]
Payload = Annotated[
    str | None,
    typer.Option("--payload", metavar="JSON", help="The task's arguments as a JSON object; - reads standard input."),
]
Timezone = Annotated[
    str | None, typer.Option("--timezone", metavar="ZONE", help="Such as Europe/Paris.  [default: UTC]")
]
Queue = Annotated[
    str | None, typer.Option("--queue", metavar="QUEUE", help="Its tasks' queue.  [default: that of the handler]")
]
Priority = Annotated[
    int | None, typer.Option("--priority", metavar="N", help="Higher runs first.  [default: that of the handler]")
]
Missed = Annotated[
    str | None,
    typer.Option(
        "--missed", metavar="WHAT", help="Fire times that nobody was there for: skip, latest or all.  [default: latest]"
    ),
]
MissedMax = Annotated[
    int | None, typer.Option("--missed-max", metavar="N", help="With --missed all: at most so many.  [default: 100]")
]
Overlap = Annotated[
    str | None,
    typer.Option(
        "--overlap", metavar="WHAT", help="While its last task lives: allow the next, or skip it.  [default: allow]"
    ),
]
Jitter = Annotated[
    str | None,
    typer.Option("--jitter", metavar="TIME", help="Start each task up to so much later: 30s, 5m.  [default: 0]"),
]


@commands.command("list")
def list_schedules(
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=LIMIT_MAX, help="At most so many.")
    ] = LIMIT_DEFAULT,
    as_json: options.Json = False,
    dsn: options.Dsn = None,
) -> None:
    """List the schedules: when they fire and fired, how late, and what was missed and skipped in a day."""
    from pgtasks.cli import schedules_screen
    from pgtasks.store import schedule_reading
    from pgtasks.store.session import fetch_all

    with connected(dsn) as connection:
        rows = fetch_all(connection, schedule_reading.schedules(limit=limit))
    schedules_screen.show_list(rows, limit=limit, as_json=as_json)


@commands.command()
def show(name: Name, as_json: options.Json = False, dsn: options.Dsn = None) -> None:
    """Show everything about one schedule, in words as well, with its next fires."""
    from pgtasks.cli import schedules_known, schedules_screen

    with connected(dsn) as connection:
        found = schedules_known.read(connection, name)
    schedules_screen.show_one(found, as_json=as_json)


@commands.command()
def add(
    name: Name,
    expression: Annotated[
        str, typer.Argument(metavar="EXPRESSION", help='When, such as "0 9 * * mon-fri".', show_default=False)
    ],
    task: Annotated[str, typer.Argument(metavar="TASK", help="The name of the task to enqueue.", show_default=False)],
    *,
    payload: Payload = None,
    timezone: Timezone = None,
    seconds: Annotated[bool, typer.Option("--seconds", help="Six fields, the second first.")] = False,
    queue: Queue = None,
    priority: Priority = None,
    missed: Missed = None,
    missed_max: MissedMax = None,
    overlap: Overlap = None,
    jitter: Jitter = None,
    disabled: Annotated[bool, typer.Option("--disabled", help="Make it paused.")] = False,
    as_json: options.Json = False,
    dsn: options.Dsn = None,
) -> None:
    """Make a schedule. It fires from now on, never for the time before."""
    from pgtasks.cli import schedules_writing
    from pgtasks.cli.schedules_writing import Given

    given = Given(
        expression=expression, task=task, payload=payload, timezone=timezone, seconds=seconds, queue=queue,
        priority=priority, missed=missed, missed_max=missed_max, overlap=overlap, jitter=jitter,
    )  # fmt: skip
    one = schedules_writing.definition(name, given)
    with connected(dsn) as connection:
        schedules_writing.add(connection, one, enabled=not disabled, as_json=as_json)


@commands.command()
def edit(
    name: Name,
    *,
    expression: Annotated[str | None, typer.Option("--expression", metavar="EXPRESSION", help="When.")] = None,
    task: Annotated[str | None, typer.Option("--task", metavar="TASK", help="The task to enqueue.")] = None,
    payload: Payload = None,
    timezone: Timezone = None,
    seconds: Annotated[
        bool | None, typer.Option("--seconds/--no-seconds", help="Six fields, the second first.", show_default=False)
    ] = None,
    queue: Queue = None,
    priority: Priority = None,
    missed: Missed = None,
    missed_max: MissedMax = None,
    overlap: Overlap = None,
    jitter: Jitter = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="WHAT", help="Back to the handler's own: queue or priority; may be repeated."),
    ] = None,
    disabled: Annotated[
        bool | None, typer.Option("--disabled/--enabled", help="Pause it, or let it go on.", show_default=False)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Also when code defines it, which writes it anew.")] = False,
    as_json: options.Json = False,
    dsn: options.Dsn = None,
) -> None:
    """Change a schedule; what is not given stays. A new plan counts from now on."""
    from pgtasks.cli import schedules_writing
    from pgtasks.cli.schedules_writing import Given

    given = Given(
        expression=expression, task=task, payload=payload, timezone=timezone, seconds=seconds, queue=queue,
        priority=priority, missed=missed, missed_max=missed_max, overlap=overlap, jitter=jitter,
        unset=tuple(unset or ()), enabled=None if disabled is None else not disabled,
    )  # fmt: skip
    if given == Given():
        raise ConfigError("say what to change, such as --expression — see: pgtasks schedules edit --help")
    with connected(dsn) as connection:
        schedules_writing.edit(connection, name, given, force=force, as_json=as_json)


@commands.command()
def pause(names: Names, as_json: options.Json = False, dsn: options.Dsn = None) -> None:
    """Stop schedules from firing; tasks that they made go on."""
    from pgtasks.cli import schedules_steering

    with connected(dsn) as connection:
        schedules_steering.pause(connection, names, as_json=as_json)


@commands.command()
def resume(names: Names, as_json: options.Json = False, dsn: options.Dsn = None) -> None:
    """Let schedules fire again, from now on; what fell into the pause is not made up for."""
    from pgtasks.cli import schedules_steering

    with connected(dsn) as connection:
        schedules_steering.resume(connection, names, as_json=as_json)


@commands.command()
def remove(names: Names, as_json: options.Json = False, dsn: options.Dsn = None) -> None:
    """Remove schedules; tasks that they made go on, and their history stays for its time."""
    from pgtasks.cli import schedules_steering

    with connected(dsn) as connection:
        schedules_steering.remove(connection, names, as_json=as_json)


@commands.command()
def prune(
    app: Annotated[
        str | None,
        typer.Argument(metavar="[MODULE:APP]", help="The app; with --gone, its deployment.", show_default=False),
    ] = None,
    *,
    gone: Annotated[bool, typer.Option("--gone", help="The app itself is gone: remove all schedules it had.")] = False,
    dry_run: DryRun = False,
    as_json: options.Json = False,
    dsn: options.Dsn = None,
) -> None:
    """Remove the schedules that an app's code no longer defines; never those of people or other apps."""
    from pgtasks.cli import schedules_steering

    with connected(dsn) as connection:
        schedules_steering.prune(connection, app, gone=gone, dry_run=dry_run, as_json=as_json)


@commands.command()
def run(name: Name, as_json: options.Json = False, dsn: options.Dsn = None) -> None:
    """Enqueue a schedule's task now and print its id; its plan stays as it is."""
    from pgtasks.cli import schedules_steering

    with connected(dsn) as connection:
        schedules_steering.run(connection, name, as_json=as_json)


@commands.command("next")
def next_fires(
    what: Annotated[
        str,
        typer.Argument(metavar="EXPRESSION|NAME", help="A cron expression, or a schedule's name.", show_default=False),
    ],
    *,
    number: Annotated[
        int, typer.Option("-n", "--number", metavar="N", min=1, max=FIRES_MAX, help="How many.")
    ] = FIRES_DEFAULT,
    timezone: Timezone = None,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="INSTANT", help="After then: ISO 8601.  [default: now]")
    ] = None,
    seconds: Annotated[bool, typer.Option("--seconds", help="Six fields, the second first.")] = False,
    as_json: options.Json = False,
    dsn: options.Dsn = None,
) -> None:
    """Say when an expression or a schedule fires next; an expression needs no database."""
    from pgtasks.cli import schedules_next

    after = None if from_ is None else options.instant(from_, "--from")
    schedules_next.tell(what, number, timezone=timezone, seconds=seconds, after=after, as_json=as_json, dsn=dsn)


@commands.command()
def history(
    name: Name,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=LIMIT_MAX, help="At most so many.")
    ] = HISTORY_LIMIT_DEFAULT,
    as_json: options.Json = False,
    dsn: options.Dsn = None,
) -> None:
    """List what became of a schedule's fire times, the latest first."""
    from pgtasks.cli import schedules_known, schedules_screen
    from pgtasks.store import schedule_reading
    from pgtasks.store.session import fetch_all

    with connected(dsn) as connection:
        rows = fetch_all(connection, schedule_reading.history(name, limit=limit))
        if not rows:
            # A removed schedule has a history for a while; only what has neither is unknown.
            schedules_known.read(connection, name)
    schedules_screen.show_history(rows, limit=limit, as_json=as_json)


@commands.command()
def backfill(
    name: Name,
    *,
    from_: Annotated[
        str, typer.Option("--from", metavar="WHEN", help="Slots from then on: ISO 8601, or 2h, 7d for ago.")
    ],
    to: Annotated[str | None, typer.Option("--to", metavar="WHEN", help="Slots before then.  [default: now]")] = None,
    also_missed: Annotated[bool, typer.Option("--also-missed", help="Also slots that are recorded as missed.")] = False,
    allow_overlap: Annotated[
        bool, typer.Option("--allow-overlap", help="Although the schedule says that its tasks must not overlap.")
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=BACKFILL_LIMIT_MAX, help="Fire at most so many.")
    ] = BACKFILL_LIMIT_DEFAULT,
    force: Annotated[
        bool, typer.Option("--force", help="Also slots so old that nobody knows whether they have fired.")
    ] = False,
    dry_run: DryRun = False,
    as_json: options.Json = False,
    dsn: options.Dsn = None,
) -> None:
    """Fire the past slots that have no fire yet, the earliest first, each with its own fire time.

    They run now; a slot that has fired is never fired again.
    """
    from pgtasks.cli import schedules_backfill
    from pgtasks.cli.schedules_backfill import Asked

    start, end = options.past(from_, "--from"), options.past(to, "--to")
    with connected(dsn) as connection:
        schedules_backfill.backfill(
            connection,
            Asked(name, start, end, also_missed, allow_overlap, force, limit),
            dry_run=dry_run,
            as_json=as_json,
        )
