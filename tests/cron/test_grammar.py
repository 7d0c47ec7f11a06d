"""What an expression may look like; whatever else is typed is refused with the field named."""

from __future__ import annotations

import time

import pytest

from pgtasks.cron import CronSchedule, grammar
from pgtasks.cron.fields import Expression
from pgtasks.errors import ConfigError, ScheduleError


def read(text: str, *, seconds: bool = False) -> Expression:
    """Return what was read from an expression that is no period."""
    rule = grammar.parse(text, seconds=seconds)
    assert isinstance(rule, Expression)
    return rule


@pytest.mark.parametrize(
    ("field", "text", "values"),
    [
        ("minute", "5/15 * * * *", (5, 20, 35, 50)),
        ("minute", "*/45 * * * *", (0, 45)),
        ("minute", "59/15 * * * *", (59,)),
        ("minute", "10-20/5,7 * * * *", (7, 10, 15, 20)),
        ("minute", "05 * * * *", (5,)),
        ("minute", "*/60 * * * *", (0,)),
        ("hour", "0 22-2 * * *", (0, 1, 2, 22, 23)),
        ("hour", "0 22-4/2 * * *", (0, 2, 4, 22)),
        ("hour", "0 5-5 * * *", (5,)),
        ("day", "0 0 */7 * *", (1, 8, 15, 22, 29)),
        ("month", "0 0 1 nov-feb *", (1, 2, 11, 12)),
        ("month", "0 0 1 JAN,Jul *", (1, 7)),
        ("month", "0 0 1 jan-jan *", (1,)),
        ("weekday", "0 0 * * 7", (0,)),
        ("weekday", "0 0 * * 5-7", (0, 5, 6)),
        ("weekday", "0 0 * * fri-sun", (0, 5, 6)),
        ("weekday", "0 0 * * fri-mon", (0, 1, 5, 6)),
        ("weekday", "0 0 * * sun-fri", (0, 1, 2, 3, 4, 5)),
        ("weekday", "0 0 * * 7-2", (0, 1, 2)),
        ("weekday", "0 0 * * 0-7", (0, 1, 2, 3, 4, 5, 6)),
        ("weekday", "0 0 * * 1-7/2", (0, 1, 3, 5)),
        ("weekday", "0 0 * * 5/1", (5, 6)),
        ("weekday", "0 0 * * Mon-FRI", (1, 2, 3, 4, 5)),
        ("weekday", "0 0 * * 7-7", (0,)),
        ("weekday", "\t0  0\t* * sat ", (6,)),
    ],
)
def test_the_values_of_a_field(field: str, text: str, values: tuple[int, ...]) -> None:
    """Lists, ranges, steps, names, and ranges over the end of hours, months and weekdays."""
    assert getattr(read(text), field).values == values


@pytest.mark.parametrize(
    ("nickname", "same"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        (" @Annually\t", "0 0 1 1 *"),
    ],
)
def test_nicknames(nickname: str, same: str) -> None:
    """They need no other field, with or without seconds."""
    assert read(nickname) == read(same) == read(nickname, seconds=True)


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("0 0 4 * * *", ["6 fields: seconds first needs seconds=True; did you mean `0 4 * * *`?"]),
        ("30 * * * * *", ["6 fields: seconds first needs seconds=True; did you mean `* * * * *`?"]),
        ("0 0 12 ? * 1 2025", ["7 fields: 5 are needed", "no field for the year", "did you mean `0 12 * * 1`?"]),
        ("0 4 * *", ["4 fields: 5 are needed, minute hour", "did you mean `0 4 * * *`?"]),
        ("15", ["1 field: 5 are needed", "did you mean `15 * * * *`?"]),
        ("0 0 1 2 3 4 5 6", ["8 fields: 5 are needed"]),
        ("99 99 99 99", ["4 fields: 5 are needed"]),
    ],
)
def test_a_wrong_number_of_fields_is_counted(text: str, messages: list[str]) -> None:
    """Six fields never silently mean something else, and only what would be right is suggested."""
    with pytest.raises(ScheduleError) as refused:
        CronSchedule(text)
    assert refused.value.field == "expression"
    assert all(message in str(refused.value) for message in messages)
    assert ("did you mean" in str(refused.value)) is any("did you mean" in message for message in messages)


def test_seconds_come_first_and_only_when_asked_for() -> None:
    """`0 0 4 * * *` is then four in the morning."""
    rule = read("0 0 4 * * *", seconds=True)
    assert (rule.second.values, rule.minute.values, rule.hour.values) == ((0,), (0,), (4,))
    assert read("30 * * * * *", seconds=True).second.values == (30,)
    with pytest.raises(ScheduleError, match=r"5 fields: seconds=True needs 6.*did you mean `0 0 4 \* \* \*`"):
        CronSchedule("0 4 * * *", seconds=True)


REFUSED = [
    ("*/0 * * * *", "minute", "the step of `*/0` is not between 1 and 60"),
    ("*/90 * * * *", "minute", "`@every 90m`"),
    ("0 */25 * * *", "hour", "not between 1 and 24"),
    ("60 * * * *", "minute", "60 is not between 0 and 59; did you mean 0?"),
    ("* 24 * * *", "hour", "did you mean 0?"),
    ("* * 0 * *", "day-of-month", "0 is not between 1 and 31"),
    ("* * 32 * *", "day-of-month", "32 is not between"),
    ("* * * 13 *", "month", "13 is not between 1 and 12"),
    ("* * * 0 *", "month", "0 is not between 1 and 12"),
    ("* * * * 8", "day-of-week", "8 is not between 0 and 7"),
    ("1,,2 * * * *", "minute", "a comma with nothing beside it"),
    (",1 * * * *", "minute", "a comma with nothing beside it"),
    ("1, * * * *", "minute", "a comma with nothing beside it"),
    ("*,5 * * * *", "minute", "already is every value"),
    ("-1 * * * *", "minute", "numbers have no sign"),
    ("+1 * * * *", "expression", "'+' at position 1"),
    ("1_0 * * * *", "expression", "'_' at position 2"),
    ("1.5 * * * *", "expression", "'.' at position 2"),
    ("\uff10 * * * *", "expression", "is not ASCII; write 0"),
    ("\u0663 * * * *", "expression", "is not ASCII; write 3"),
    ("0\u00a00 * * *", "expression", "use a plain space"),
    ("0 0 * * *\n", "expression", "use a plain space"),
    ("0 0 * * *\x00", "expression", "has no meaning"),
    ("1-5-7 * * * *", "minute", "`1-5-7` is not a value"),
    ("*/5/2 * * * *", "minute", "`*` takes only a step"),
    ("*-5 * * * *", "minute", "`*` takes only a step"),
    ("1/* * * * *", "minute", "`*` takes only a step"),
    ("5-1 * * * *", "minute", "runs backwards; did you mean `1-5`, or `0-1,5-59`?"),
    ("0 0 25-5 * *", "day-of-month", "did you mean `5-25`, or `1-5,25-31`?"),
    ("", "expression", "it is empty"),
    (" \t ", "expression", "it is empty"),
    ("0 0 * * *; drop table x", "expression", "';' at position 10"),
    ("@reboot", "expression", "@reboot has no time"),
    ("@dayly", "expression", "did you mean @daily?"),
    ("@", "expression", "@ is not known"),
    ("@daily 5", "expression", "stands alone"),
    ("0 0 ? * 1", "day-of-month", "`?` is not used here; write `*`"),
    ("0 0 15W * *", "day-of-month", "`W`, the nearest working day"),
    ("0 0 LW * *", "day-of-month", "`W`, the nearest working day"),
    ("0 0 L-3 * *", "day-of-month", "`L` is the last day"),
    ("0 0 * * L5", "day-of-week", "such as `5L`"),
    ("0 0 * * L", "day-of-week", "`l` is not a value"),
    ("0 0 * * 1#6", "day-of-week", "not one of the 1st to 5th"),
    ("0 0 * * 1#0", "day-of-week", "not one of the 1st to 5th"),
    ("0 0 * * 8#1", "day-of-week", "8 is not between 0 and 7"),
    ("0 0 5#1 * *", "day-of-month", "`5#1` is not a value"),
    ("H * * * *", "minute", "`H` is not supported"),
    ("H/5 * * * *", "minute", "`H` is not supported"),
    ("R * * * *", "minute", "would differ on every machine"),
    ("0 0 * * monday", "day-of-week", "did you mean `mon`?"),
    ("0 0 1 sept *", "month", "did you mean `sep`?"),
    ("0 0 1 mon *", "month", "`mon` is not a value"),
    ("0 0 * jan-13 *", "month", "13 is not between"),
]


@pytest.mark.parametrize(("text", "field", "message"), REFUSED)
def test_what_cannot_be_meant_is_refused(text: str, field: str, message: str) -> None:
    """The error names the field first, and then says what is wrong with it."""
    with pytest.raises(ConfigError) as refused:
        CronSchedule(text)
    assert isinstance(refused.value, ScheduleError)
    assert refused.value.field == field
    assert str(refused.value).startswith(f"{field}: ")
    assert message in str(refused.value)


@pytest.mark.parametrize("value", [None, 5, b"* * * * *", ["*"] * 5])
def test_only_a_string_is_an_expression(value: object) -> None:
    """A value from JSON can be anything."""
    with pytest.raises(ScheduleError, match="a cron expression is a string"):
        CronSchedule(value)  # type: ignore[arg-type]  # wrong on purpose


def test_a_huge_text_is_refused_at_once() -> None:
    """It is not read, and not repeated in the message."""
    started_s = time.thread_time()
    with pytest.raises(ScheduleError, match="at most 256 are allowed") as refused:
        CronSchedule("0," * 300_000 + "0 * * * *")
    assert time.thread_time() - started_s < 0.1
    assert len(str(refused.value)) < 200


def test_the_longest_allowed_text_is_read() -> None:
    """All minutes, one by one, fit."""
    text = ",".join(map(str, range(60))) + " * * * *"
    assert len(text) < grammar.EXPRESSION_CHARS_MAX
    assert len(read(text).minute.values) == 60
    padded = text.ljust(grammar.EXPRESSION_CHARS_MAX)
    assert read(padded) == read(text)
    with pytest.raises(ScheduleError, match="257 characters"):
        grammar.parse(f"{padded} ")
