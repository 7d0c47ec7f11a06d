"""Bytes from a terminal become the names of keys."""

import pytest

from pgtasks.cli.top_keys import keys_of


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        (b"q", ("q",)),
        (b"cy", ("c", "y")),
        (b"\x1b[A\x1b[B\x1bOA\x1bOB", ("up", "down", "up", "down")),
        (b"\x1b[5~\x1b[6~", ("page up", "page down")),
        (b"\t ?", ("tab", " ", "?")),
        (b"\x1b", ("escape",)),
        (b"\x1b[1;5Cj", ("", "j")),
        ("ä\x00".encode(), ("", "", "")),
        (b"", ()),
    ],
)
def test_keys_have_names(typed: bytes, keys: tuple[str, ...]) -> None:
    """Those that mean nothing here have an empty one, and none is taken for another."""
    assert keys_of(typed) == keys
