"""Counts, ages and rates fit into a narrow column."""

import pytest

from pgtasks.cli.amounts import age, late, number, rate


@pytest.mark.parametrize(
    ("count", "estimated", "shown"),
    [
        (0, False, "0"),
        (0, True, "~0"),
        (12_345, False, "12,345"),
        (12_345, True, "~12,345"),
        (123_456, True, "~123k"),
        (999_700, True, "~1.0M"),
        (1_234_567, True, "~1.2M"),
        (123_456_789, True, "~123M"),
        (54_321_000_000, True, "~54.3G"),
        (1_234_567, False, "1,234,567"),
    ],
)
def test_estimates_are_marked_and_short(count: int, estimated: bool, shown: str) -> None:  # noqa: FBT001 - a parameter of the table above
    """Exact counts are written in full."""
    assert number(count, estimated=estimated) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(None, "-"), (-1, "0s"), (59.9, "59s"), (192, "3m12s"), (7500, "2h05m"), (360_000, "4d04h")],
)
def test_ages_have_two_units(seconds: float | None, shown: str) -> None:
    """The two largest."""
    assert age(seconds) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(None, "-"), (-3.0, "0ms"), (0.0084, "8ms"), (2.54, "2.5s"), (10.9, "10s"), (192, "3m12s")]
)
def test_lateness_begins_with_milliseconds(seconds: float | None, shown: str) -> None:
    """Which is what it normally is."""
    assert late(seconds) == shown


@pytest.mark.parametrize(("per_s", "shown"), [(0.0, "0"), (0.04, "<0.1"), (12.34, "12.3"), (51_234.5, "51,234")])
def test_rates_drop_decimals_that_say_nothing(per_s: float, shown: str) -> None:
    """From a hundred on."""
    assert rate(per_s) == shown
    assert rate(per_s, estimated=True) == f"~{shown}"
