"""Text from data is shown literally: nothing in it acts, hides or breaks a line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from pgtasks.cli.escape import escape, shortened
from pgtasks.cli.render import safe


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\tc\r", "a\\x0ab\\x09c\\x0d"),
        ("\x9b31m\x7f", "\\x9b31m\\x7f"),
        ("a\u202eb", "a\\u202eb"),
        ("\u2066x\u2069\u200f", "\\u2066x\\u2069\\u200f"),
        ("zero\u200bwidth\ufeff", "zero\\u200bwidth\\ufeff"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
        ("\u2028", "\\u2028"),
        ("宽字符 é ñ 😀 [/x] :smile:", "宽字符 é ñ 😀 [/x] :smile:"),
        (b"caf\xe9", "caf\\xe9"),
    ],
)
def test_characters_that_act_or_hide_are_written_out(text: object, shown: str) -> None:
    """The rest is left as it is, other alphabets included."""
    assert escape(text) == shown


def test_newlines_stay_where_lines_are_wanted() -> None:
    """A traceback keeps its lines, and nothing else."""
    assert escape("a\n\x1bb\r\n", keep_newlines=True) == "a\n\\x1bb\\x0d\n"


@given(st.text(alphabet=st.characters()))
def test_what_is_shown_can_be_printed(text: str) -> None:
    """It encodes to UTF-8, and has neither control characters nor line breaks."""
    shown = escape(text)
    shown.encode()
    assert not any(character < " " or "\x7f" <= character <= "\x9f" for character in shown)
    assert len(shown.splitlines()) <= 1


def test_long_text_is_cut() -> None:
    """The cut is shown."""
    assert shortened("x" * 10, 5) == "xxxx…"
    assert safe("y" * 1000).plain == "y" * 199 + "…"
    assert len(escape("z" * 1_000_000)) == 100_000


def test_markup_is_not_read() -> None:
    """A cell holds the text itself, with no style but the one that was asked for."""
    cell = safe("[bold]x[/bold][/foo]", "red")
    assert cell.plain == "[bold]x[/bold][/foo]"
    assert not cell.spans
    assert cell_len(safe("宽字").plain) == 4
