"""Settings: one table of names, environment variables, defaults and limits.

Precedence is flag, then environment, then default; an unset value stays None until then.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, Literal, cast, get_args

from pgtasks.durations import is_duration, seconds_in
from pgtasks.errors import ConfigError

Pooler = Literal["none", "transaction"]
LogFormat = Literal["text", "json"]

QUEUE_DEFAULT = "default"
TIMEOUT_S_DEFAULT = 1800.0
NAME_CHARACTERS_MAX = 200
UNIQUE_KEY_CHARACTERS_MAX = 500
# For handlers that ignored their stop.
STUCK_ADVICE = 'give them a timeout-aware loop, or executor="process"'
PRIORITY_MIN, PRIORITY_MAX = -32768, 32767


@dataclass(frozen=True, slots=True)
class QueueSlots:
    """A queue a worker serves, and how many of its tasks may run here at once (None: no own limit)."""

    name: str
    slots: int | None = None

    @classmethod
    def parse(cls, text: str) -> QueueSlots:
        """Read ``QUEUE`` or ``QUEUE:SLOTS``; raises ConfigError."""
        name, colon, slots = text.rpartition(":")
        if not colon:
            name, slots = text, ""
        if colon and not (slots.isascii() and slots.isdigit() and 1 <= int(slots) <= CONCURRENCY_MAX):
            raise ConfigError(
                f"queue {text!r}: after the last colon comes a number of slots, 1 to {CONCURRENCY_MAX}, as in mail:4"
            )
        return cls(check_name(name, "queue"), int(slots) if colon else None)


CONCURRENCY_MAX = 10_000
PROCESSES_MAX = 256
# After the loss of a worker all it ran goes through children, most of which then only wait for others.
CHILDREN_LEAST = 4
KEEP_S_MIN = 3600.0
PORT_MAX = 65535


def _about(env: str, help_text: str, least: float | None = None, most: float | None = None) -> dict[str, Any]:
    return {"env": env, "help": help_text, "least": least, "most": most}


def _cores() -> int:
    """Count the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How one worker process behaves. Times are seconds; validated when made (ConfigError)."""

    # Not in the repr, because it may hold a password.
    dsn: str = field(default="", repr=False, metadata=_about("PGTASKS_DSN", "PostgreSQL connection string"))
    queues: tuple[QueueSlots, ...] = field(
        default=(), metadata=_about("PGTASKS_QUEUES", "queues to serve, comma-separated QUEUE[:SLOTS]")
    )
    concurrency: int = field(
        default=100, metadata=_about("PGTASKS_CONCURRENCY", "tasks that run at once", 1, CONCURRENCY_MAX)
    )
    processes: int = field(
        default=1, metadata=_about("PGTASKS_PROCESSES", "worker processes to keep running", 1, PROCESSES_MAX)
    )
    children: int = field(
        default_factory=lambda: max(CHILDREN_LEAST, _cores()),
        metadata=_about("PGTASKS_CHILDREN", "processes for isolated tasks, which run one at a time in each", 1, 1000),
    )
    child_memory_mib: int = field(
        default=0,
        metadata=_about(
            "PGTASKS_CHILD_MEMORY", "MiB of address space that such a process may use, 0 for no limit", 0, 2**30
        ),
    )
    child_max_tasks: int = field(
        default=0,
        metadata=_about(
            "PGTASKS_CHILD_MAX_TASKS", "tasks after which such a process is replaced, 0 for never", 0, 10**9
        ),
    )
    stuck_max: int | None = field(
        default=None,
        metadata=_about(
            "PGTASKS_STUCK_MAX",
            "stuck handlers with which the worker starts afresh, 0 for never",
            0,
            CONCURRENCY_MAX,
        ),
    )
    lease_s: float = field(
        default=30.0,
        metadata=_about("PGTASKS_LEASE", "seconds after which a silent worker's tasks go to others", 1, 3600),
    )
    sweep_interval_s: float = field(
        default=5.0, metadata=_about("PGTASKS_SWEEP_INTERVAL", "seconds between looks for expired leases", 0.1, 600)
    )
    shutdown_grace_s: float = field(
        default=30.0,
        metadata=_about("PGTASKS_SHUTDOWN_GRACE", "seconds that running tasks get to finish after SIGTERM", 0, 86400),
    )
    keep_s: float = field(
        default=604_800.0,
        metadata=_about(
            "PGTASKS_KEEP", "how long history and failed attempts are kept, as in 7d or 12h, 0 for ever", 0, 10**10
        ),
    )
    safety_poll_s: float = field(
        default=5.0,
        metadata=_about(
            "PGTASKS_SAFETY_POLL", "longest sleep of an idle worker, in seconds, whatever notifications say", 0.05, 60
        ),
    )
    pooler: Pooler = field(
        default="none",
        metadata=_about("PGTASKS_POOLER", "none, or transaction when the DSN leads through such a pooler"),
    )
    # Not in the repr, as above.
    listen_dsn: str = field(
        default="",
        repr=False,
        metadata=_about(
            "PGTASKS_LISTEN_DSN", "direct connection string for LISTEN, where the other leads through a pooler"
        ),
    )
    scheduler: bool = field(
        default=True, metadata=_about("PGTASKS_SCHEDULER", "fire cron schedules that are due; not while draining")
    )
    metrics_port: int = field(
        default=0,
        metadata=_about("PGTASKS_METRICS_PORT", "port of /metrics, /livez and /readyz, 0 for none", 0, PORT_MAX),
    )
    metrics_host: str = field(
        default="127.0.0.1", metadata=_about("PGTASKS_METRICS_HOST", "address of that port, 0.0.0.0 for all")
    )
    drain: bool = field(default=False, metadata=_about("PGTASKS_DRAIN", "work until nothing is due, then stop"))
    log_format: LogFormat = field(default="text", metadata=_about("PGTASKS_LOG_FORMAT", "text or json"))
    log_level: str = field(default="info", metadata=_about("PGTASKS_LOG_LEVEL", "debug, info, warning or error"))

    @property
    def stuck_limit(self) -> int:
        """Give ``stuck_max``, by default half of the concurrency, rounded up."""
        return (self.concurrency + 1) // 2 if self.stuck_max is None else self.stuck_max

    def __post_init__(self) -> None:
        """Refuse values out of range, naming the setting and its range."""
        for setting in fields(self):
            _check(setting, getattr(self, setting.name), flag_of(setting.name))
        if self.metrics_port and self.metrics_port + self.processes - 1 > PORT_MAX:
            raise ConfigError(
                f"--metrics-port {self.metrics_port} is too high for {self.processes} processes, "
                f"each of which takes the next port: {PORT_MAX} is the last"
            )


def _check(setting: Field[Any], value: Any, said: str) -> None:
    """Raise ConfigError for a value that a setting cannot have; ``said`` is the name that a person wrote."""
    least, most, allowed = setting.metadata["least"], setting.metadata["most"], _CHOICES.get(setting.name)
    if least is not None and value is not None and not least <= value <= most:
        raise ConfigError(f"{said} must be between {least:g} and {most:g}, got {value}")
    if allowed is not None and value not in allowed:
        raise ConfigError(f"{said} must be {' or '.join(allowed)}, got {value!r}")
    if setting.name == "keep_s" and 0 < value < KEEP_S_MIN:
        raise ConfigError(f"{said} must be 0 (for ever) or at least an hour, got {value:g} seconds")
    if setting.name == "metrics_host" and not value.strip():
        # The sockets take it for all addresses.
        raise ConfigError(
            f"{said} is empty, perhaps from a shell variable that is not set — give an address: "
            "127.0.0.1 for this machine alone, 0.0.0.0 for all"
        )
    if setting.name == "queues":
        seen = [queue.name for queue in value]
        if len(set(seen)) < len(seen):
            raise ConfigError(f"{said}: a queue is named twice: {', '.join(seen)}")


_CHOICES: dict[str, tuple[str, ...]] = {
    "pooler": get_args(Pooler),
    "log_format": get_args(LogFormat),
    "log_level": ("debug", "info", "warning", "error"),
}


def check_pooler(kind: str, said: str) -> Pooler:
    """Give back a kind of pooler; raises ConfigError, with the name that a person wrote, for an unknown one."""
    for known in get_args(Pooler):
        if kind == known:
            return cast("Pooler", known)
    raise ConfigError(f"{said} must be {' or '.join(get_args(Pooler))}, got {kind!r}")


def flag_of(name: str) -> str:
    """Give a setting's name as people type it: ``lease_s`` is ``--lease``."""
    if name == "queues":
        return "--queue"
    return "--" + name.removesuffix("_s").removesuffix("_mib").replace("_", "-")


def worker_settings(flags: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> WorkerSettings:
    """Resolve a worker's settings: flags that are not None, else the environment, else defaults.

    Raises ConfigError, naming the variable, for a value that cannot be read, and for a
    PGTASKS_ variable that looks like a misspelt one.
    """
    environ = os.environ if environ is None else environ
    known = {setting.metadata["env"]: setting for setting in fields(WorkerSettings)}
    values: dict[str, Any] = {}
    for variable, setting in known.items():
        if flags.get(setting.name) is not None:
            values[setting.name] = flags[setting.name]
        elif environ.get(variable):
            values[setting.name] = _read(variable, setting.name, environ[variable])
            # Here, where it is known that the variable is to blame and no flag.
            _check(setting, values[setting.name], variable)
    _refuse_misspelt(environ, known)
    return WorkerSettings(**values)


OTHER_VARIABLES = ("PGTASKS_EMBEDDED_DIR",)


def _refuse_misspelt(environ: Mapping[str, str], known: Mapping[str, Any]) -> None:
    for variable in environ:
        if not variable.startswith("PGTASKS_") or variable in known or variable in OTHER_VARIABLES:
            continue
        close = difflib.get_close_matches(variable, known, n=1, cutoff=0.85)
        if close:
            raise ConfigError(f"unknown environment variable {variable}; did you mean {close[0]}?")


_DEFAULTS = WorkerSettings()
_BOOLEANS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}

_EXPECTED = {
    bool: "true or false",
    int: "a whole number",
    type(None): "a whole number",
    float: "a number of seconds, or a time span such as 90s or 1h30m",
}


def _read(variable: str, name: str, text: str) -> Any:
    default = getattr(_DEFAULTS, name)
    try:
        match default:
            case bool():
                return _BOOLEANS[text.strip().lower()]
            case int() | None:
                return int(text)
            case float():
                return seconds_in(text.strip()) if is_duration(text.strip()) else float(text)
            case tuple():
                return tuple(QueueSlots.parse(part.strip()) for part in text.split(","))
    except ConfigError as error:
        raise ConfigError(f"{variable}: {error}") from None
    except (ValueError, KeyError):
        expected = _EXPECTED[type(default)]
        raise ConfigError(f"{variable}={text!r} must be {expected} (it is what {flag_of(name)} sets)") from None
    return text


def check_integer(what: str, value: object, least: int, most: int) -> None:
    """Raise ConfigError, naming ``what``, unless the value is None or a whole number in the range."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigError(f"{what} must be a whole number between {least} and {most}, got {value!r}")


def check_name(name: object, what: str) -> str:
    """Give back a task or queue name that the schema takes.

    Raises ConfigError, naming ``what``, for one that is empty, longer than 200 characters, or
    holds control characters.
    """
    if not isinstance(name, str):
        raise ConfigError(f"{what} must be text, got {type(name).__name__}")
    if not 1 <= len(name) <= NAME_CHARACTERS_MAX:
        raise ConfigError(f"{what} must have 1 to {NAME_CHARACTERS_MAX} characters, got {len(name)}")
    bad = next((c for c in name if c < " " or c == "\x7f" or "\ud800" <= c <= "\udfff"), None)
    if bad is not None:
        raise ConfigError(f"{what} must not hold control characters or lone surrogates, found U+{ord(bad):04X}")
    return name
