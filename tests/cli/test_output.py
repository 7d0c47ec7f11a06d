"""JSON documents are ASCII, keep what PostgreSQL keeps, and write moments in UTC."""

import json
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest

from pgtasks.cli.output import RawJson, iso, json_text


def test_values_of_the_database_have_their_form() -> None:
    """Moments in UTC with Z, ids as numbers, UUIDs as text."""
    moment = datetime(2026, 11, 29, 22, 0, 0, 5, tzinfo=timezone(timedelta(hours=1)))
    document = {"at": moment, "id": 3_000_000_000, "worker": UUID(int=1)}
    assert json.loads(json_text(document)) == {
        "at": "2026-11-29T21:00:00.000005Z",
        "id": 3_000_000_000,
        "worker": "00000000-0000-0000-0000-000000000001",
    }
    assert iso(datetime(2027, 1, 1, tzinfo=UTC)) == "2027-01-01T00:00:00.000000Z"


@pytest.mark.parametrize(
    "raw",
    ['{"n": ' + "7" * 5000 + "}", "[" * 3000 + "]" * 3000, "1e400", '"\u202e\x7f宽😀"', '"a\\u001b[2Jb"', "0.10"],
    ids=["digits", "depth", "exponent", "unicode", "escape", "scale"],
)
def test_json_of_the_database_is_passed_on_as_it_is(raw: str) -> None:
    """Also where Python could not read or would round it."""
    text = json_text({"payload": RawJson(raw), "result": RawJson(None), "name": "x"})
    assert text.isascii()
    assert "\x1b" not in text
    assert "\x7f" not in text
    if len(raw) < 100:
        assert json.loads(text, parse_float=str) == {
            "payload": json.loads(raw, parse_float=str),
            "result": None,
            "name": "x",
        }
    else:
        assert raw in text


def test_several_raw_texts_keep_their_places() -> None:
    """In the order of the document."""
    text = json_text([RawJson("1"), {"a": RawJson("[2]")}, RawJson('"3"')])
    assert json.loads(text) == [1, {"a": [2]}, "3"]
