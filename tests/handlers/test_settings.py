"""A worker's settings: flag, then environment, then default; every value in its range, or named."""

from dataclasses import fields
from typing import Any

import pytest

from pgtasks import ConfigError
from pgtasks.settings import QueueSlots, WorkerSettings, flag_of, worker_settings

RANGES: dict[str, tuple[float, float]] = {
    "concurrency": (1, 10_000),
    "lease_s": (1, 3600),
    "sweep_interval_s": (0.1, 600),
    "shutdown_grace_s": (0, 86_400),
    "safety_poll_s": (0.05, 60),
}


def test_every_setting_has_a_default() -> None:
    """An empty environment gives them."""
    settings = worker_settings({}, {})
    assert settings == WorkerSettings()
    assert (settings.concurrency, settings.lease_s, settings.queues) == (100, 30.0, ())


@pytest.mark.parametrize("name", RANGES)
def test_the_ends_of_a_range_are_allowed_and_nothing_beyond(name: str) -> None:
    """As a flag and as a variable; infinity and "not a number" lie in no range."""
    least, most = RANGES[name]
    variable = {setting.name: setting.metadata["env"] for setting in fields(WorkerSettings)}[name]
    for good in (least, most):
        assert getattr(worker_settings({name: good}, {}), name) == good
        assert getattr(worker_settings({}, {variable: f"{good:g}"}), name) == good
    for bad in (least - 0.5, least - 1, most + 1, float("inf"), float("nan")):
        with pytest.raises(ConfigError, match=f"{flag_of(name)} must be between"):
            worker_settings({name: bad}, {})
        with pytest.raises(ConfigError, match=f"^{variable}.* must be "):
            worker_settings({}, {variable: str(bad)})
    for text in ("", " ", "many", "1e", "0x10"):
        if text:
            with pytest.raises(
                ConfigError, match=rf"{variable}='{text}' must be a .*\(it is what {flag_of(name)} sets"
            ):
                worker_settings({}, {variable: text})
        else:
            assert worker_settings({}, {variable: text}) == WorkerSettings()


def test_a_flag_counts_more_than_the_environment() -> None:
    """Also where its value is false or zero; None is no flag."""
    environment = {"PGTASKS_SHUTDOWN_GRACE": "5", "PGTASKS_DRAIN": "yes", "PGTASKS_DSN": "host=b"}
    settings = worker_settings({"shutdown_grace_s": 0, "drain": False, "dsn": None}, environment)
    assert (settings.shutdown_grace_s, settings.drain, settings.dsn) == (0, False, "host=b")


@pytest.mark.parametrize(
    ("text", "value"), [("1", True), ("TRUE", True), ("on", True), (" yes ", True), ("0", False), ("no", False)]
)
def test_truth_is_read_as_people_write_it(text: str, value: object) -> None:
    """In either case."""
    assert worker_settings({}, {"PGTASKS_DRAIN": text}).drain is value


def test_other_text_is_no_truth() -> None:
    """The message says what is."""
    with pytest.raises(ConfigError, match="PGTASKS_DRAIN='maybe' must be true or false"):
        worker_settings({}, {"PGTASKS_DRAIN": "maybe"})


@pytest.mark.parametrize(
    ("variable", "like"),
    [
        ("PGTASKS_CONCURENCY", "PGTASKS_CONCURRENCY"),
        ("PGTASKS_QUEUE", "PGTASKS_QUEUES"),
        ("PGTASKS_LEASES", "PGTASKS_LEASE"),
    ],
)
def test_a_misspelt_variable_is_named_with_the_right_one(variable: str, like: str) -> None:
    """Silence would mean that the default counts."""
    with pytest.raises(ConfigError, match=f"{variable}; did you mean {like}"):
        worker_settings({}, {variable: "1"})


def test_foreign_variables_are_none_of_our_business() -> None:
    """Neither other programs' nor users' own."""
    worker_settings({}, {"PGTASKS_MY_PROJECT": "1", "PGTASKS_EMBEDDED_DIR": "x", "PATH": "y", "PGTASKS": "z"})


@pytest.mark.parametrize(
    ("text", "queues"),
    [
        ("mail", (QueueSlots("mail"),)),
        ("mail:4, default", (QueueSlots("mail", 4), QueueSlots("default"))),
        ("a:b:10000", (QueueSlots("a:b", 10_000),)),
    ],
)
def test_queues_are_read_with_their_slots(text: str, queues: tuple[QueueSlots, ...]) -> None:
    """The last colon counts."""
    assert worker_settings({}, {"PGTASKS_QUEUES": text}).queues == queues


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mail:0", "number of slots, 1 to 10000"),
        ("mail:10001", "number of slots"),
        ("mail:", "number of slots"),
        ("mail:x", "number of slots"),
        ("mail:٤", "number of slots"),
        (":4", "queue must have 1 to 200 characters"),
        ("a,,b", "queue must have 1 to 200 characters"),
        ("a,b:2,a:3", "a queue is named twice"),
        ("a\x1b", "control characters"),
    ],
)
def test_a_bad_queue_is_named(text: str, message: str) -> None:
    """Before anything is connected."""
    with pytest.raises(ConfigError, match=f"^PGTASKS_QUEUES: .*{message}"):
        worker_settings({}, {"PGTASKS_QUEUES": text})


@pytest.mark.parametrize("name", ["pooler", "log_format", "log_level"])
def test_a_choice_is_one_of_a_few(name: str) -> None:
    """The message lists them."""
    flags: dict[str, Any] = {name: "else"}
    with pytest.raises(ConfigError, match=rf"{flag_of(name)} must be .* or .*, got 'else'"):
        worker_settings(flags, {})


def test_a_password_is_in_no_representation() -> None:
    """A settings object may end up in a log."""
    assert "secret" not in repr(worker_settings({"dsn": "postgresql://u:secret@h/d"}, {}))
