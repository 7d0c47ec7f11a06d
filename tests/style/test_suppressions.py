"""No check is silenced without a reason, and no test sleeps for luck."""

import ast
import re
from pathlib import Path

from tests.style.checkout import name, python_files, sql_files

SILENCERS = re.compile(
    r"(?:#|--)\s*(?:"
    r"noqa\b(?P<codes>:\s*[A-Z]+[0-9]*(?:,\s*[A-Z]+[0-9]*)*)?"
    r"|type:\s*ignore(?P<errors>\[[\w, -]+\])?"
    r"|pragma:\s*no\s*(?:cover|branch)(?P<coverage>)"
    r"|mypy:\s*ignore-errors"
    r")(?P<reason>.*)"
)
REASON_LETTERS_MIN = 10
POLLING_HELPER = re.compile(r"(wait|poll|until|eventually)")


def silenced(text: str, place: str) -> list[str]:
    """Return the lines of a text that silence a check without saying which one, or why."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        match = SILENCERS.search(line)
        if match is None:
            continue
        named = any(match[group] is not None for group in ("codes", "errors", "coverage"))
        if not named or len(re.findall(r"[a-z]", match["reason"])) < REASON_LETTERS_MIN:
            found.append(f"{place}:{number}: {line.strip()}")
    return found


def sleeps(text: str, place: str) -> list[str]:
    """Return the calls of `time.sleep` outside a polling helper and without a comment."""
    lines = text.splitlines()
    tree = ast.parse(text)
    helpers = {
        child
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef) and POLLING_HELPER.match(function.name)
        for child in ast.walk(function)
    }
    return [
        f"{place}:{node.lineno}: {lines[node.lineno - 1].strip()}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in {"time.sleep", "sleep"}
        and node not in helpers
        and "#" not in lines[node.lineno - 1]
    ]


def test_a_silenced_check_is_named_and_has_a_reason() -> None:
    """`# noqa: S202 - the filter refuses odd members` shows the form."""
    paths = [path for path in (*python_files(), *sql_files()) if path != Path(__file__)]
    found = [line for path in paths for line in silenced(path.read_text(), name(path))]
    assert not found, "name the check, then say why:\n" + "\n".join(found)


def test_nothing_imports_for_type_checkers_only() -> None:
    """An import that only a type checker sees is a way around the floors."""
    banned = "TYPE" + "_CHECKING"
    paths = [name(path) for path in python_files() if banned in path.read_text(encoding="utf-8")]
    assert not paths


def test_tests_wait_for_a_signal_or_poll_a_condition() -> None:
    """A sleep belongs into a helper that polls, or carries a comment that says what it stands for.

    A handler that blocks on purpose is such a case.
    """
    paths = python_files("tests")
    found = [line for path in paths for line in sleeps(path.read_text(), name(path))]
    assert not found, "wait for something instead:\n" + "\n".join(found)


def test_only_a_named_and_explained_silencer_passes() -> None:
    """Each form that is refused is seen, each that is allowed is not."""
    refused = ["x  # noqa", "x  # noqa: S101", "x  # type: ignore  # for some reason"]
    allowed = ["x  # noqa: S101 - for some reason", "x  # type: ignore[misc]  # for some reason"]
    assert len(silenced("\n".join([*refused, *allowed]), "sample")) == len(refused)


def test_only_a_polling_helper_or_an_explained_line_sleeps() -> None:
    """Both allowed forms pass, a bare sleep does not."""
    allowed = "def wait_for_it():\n    time.sleep(1)\ntime.sleep(1)  # stands for slow work\n"
    assert sleeps(allowed, "sample") == []
    assert sleeps(allowed + "time.sleep(2)", "sample") == ["sample:4: time.sleep(2)"]
