"""A schedule in English, for the preview that people read before they trust it."""

from __future__ import annotations

import pytest

from pgtasks.cron import CronSchedule

BERLIN = "Europe/Berlin"
FIXED = "When the clock is changed, a skipped time fires right after the gap, a repeated one fires the first time only."
INTERVAL = "It keeps its pace in real time when the clock is changed."
EITHER = "Day of month or day of week is enough, because neither field starts with `*`."
BOTH = "Day of month and day of week must both match, because one of the fields starts with `*`."


@pytest.mark.parametrize(
    ("expression", "zone", "words"),
    [
        ("30 1 * * *", BERLIN, f"At 01:30 every day (Europe/Berlin). {FIXED}"),
        ("30 1 * * *", "UTC", "At 01:30 every day (UTC)."),
        ("0 0 13 * 5", "UTC", f"At 00:00 on day 13 of the month or on Friday (UTC). {EITHER}"),
        ("0 0 */2 * 1", "UTC", f"At 00:00 on days 1, 3, ... 31 of the month, if it is Monday (UTC). {BOTH}"),
        (
            "0 0 13 * */2",
            "UTC",
            "At 00:00 on day 13 of the month, if it is Sunday, Tuesday, Thursday or Saturday (UTC). " + BOTH,
        ),
        ("*/15 * * * *", BERLIN, f"Every 15 minutes (Europe/Berlin). {INTERVAL}"),
        ("@hourly", BERLIN, f"At minute 0 of every hour (Europe/Berlin). {INTERVAL}"),
        ("@hourly", "UTC", "At minute 0 of every hour (UTC)."),
        ("* * * * *", "UTC", "Every minute (UTC)."),
        ("*/45 * * * *", "UTC", "At minutes 0 and 45 of every hour (UTC)."),
        ("5 */2 * * *", "UTC", "At minute 5 of every 2nd hour (UTC)."),
        ("*/5 9-17 * * mon-fri", "UTC", "Every 5 minutes of hours 9 to 17 on Monday to Friday (UTC)."),
        ("15,45 1,2 * * *", "UTC", "At 01:15, 01:45, 02:15 and 02:45 every day (UTC)."),
        ("0 9-17 * * *", "UTC", "At minute 0 of hours 9 to 17 every day (UTC)."),
        ("0 0 L * *", "UTC", "At 00:00 on the last day of the month (UTC)."),
        ("0 0 1,L 1,7 *", "UTC", "At 00:00 on day 1 and the last day of the month in January and July (UTC)."),
        ("0 0 * * 5#3", "UTC", "At 00:00 on the 3rd Friday of the month (UTC)."),
        ("0 0 * * 5L,1", "UTC", "At 00:00 on Monday and the last Friday of the month (UTC)."),
        ("0 0 1 nov-feb *", "UTC", "At 00:00 on day 1 of the month in January, February, November and December (UTC)."),
        ("@every 90s", "UTC", "Every 1 minute 30 seconds, counted from 1970-01-01 00:00 UTC."),
        ("@every 1h", "UTC", "Every hour, counted from 1970-01-01 00:00 UTC."),
        ("@every 10m", BERLIN, "Every 10 minutes, counted from 1970-01-01 00:00 UTC."),
    ],
)
def test_in_words(expression: str, zone: str, words: str) -> None:
    """The time, the days, the rule that joins the days, the rule for clock changes."""
    assert CronSchedule(expression, zone).describe() == words


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("* * * * * *", "Every second (UTC)."),
        ("*/10 * * * * *", "Every 10 seconds (UTC)."),
        ("30 * * * * *", "At second 30 of every minute (UTC)."),
        ("0 0 4 * * *", "At 04:00:00 every day (UTC)."),
        ("*/10 30 2 * * *", "At 02:30:00, 02:30:10, 02:30:20, 02:30:30, 02:30:40 and 02:30:50 every day (UTC)."),
        ("* 30 * * * *", "Every second of minute 30 of every hour (UTC)."),
        ("* * 2 * * *", "Every second of every minute of hour 2 (UTC)."),
    ],
)
def test_seconds_in_words(expression: str, words: str) -> None:
    """They come first, as in the expression."""
    assert CronSchedule(expression, seconds=True).describe() == words
