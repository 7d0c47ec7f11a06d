"""Everything a person can type or set is documented."""

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from pgtasks import cli, settings
from tests.style.checkout import ROOT, python_files, schema_sql
from tests.style.test_sql_files import FUNCTION, RELATION

# Where the value of a variable comes from, besides the settings: other modules read these.
VARIABLE = re.compile(r"\bPGTASKS_[A-Z][A-Z_]*[A-Z]\b")
HELP = {"--help", "--version", "--install-completion", "--show-completion"}


def page(name: str) -> str:
    """Return the text of one page of the documentation."""
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def root_command() -> Any:
    """Return the root of the tree of commands that the typer app of the cli describes."""
    apps = [value for value in vars(cli).values() if isinstance(value, typer.Typer)]
    assert apps, "pgtasks.cli has to hold its typer.Typer at module level"
    return typer.main.get_command(apps[0])


def commands(command: Any, path: str = "pgtasks") -> Iterator[tuple[str, Any]]:
    """Yield every command that does something, with the words that a person types."""
    children = getattr(command, "commands", {})
    for name, child in children.items():
        yield from commands(child, f"{path} {name}")
    if not children and not command.hidden:
        yield path, command


LEAVES = dict(commands(root_command()))


def test_there_are_commands() -> None:
    """The tests below would pass on an empty command line."""
    assert {"pgtasks migrate", "pgtasks worker", "pgtasks status"} <= LEAVES.keys()


@pytest.mark.parametrize("path", LEAVES)
def test_the_command_is_documented(path: str) -> None:
    """docs/cli.md shows the command as it is typed."""
    assert re.search(rf"\b{re.escape(path)}\b", page("cli.md")), f"docs/cli.md lacks `{path}`"


@pytest.mark.parametrize("path", LEAVES)
def test_the_options_of_the_command_are_documented(path: str) -> None:
    """docs/cli.md names each long option."""
    options = {option for parameter in LEAVES[path].params for option in parameter.opts}
    known = set(re.findall(r"--[a-z][a-z-]*", page("cli.md"))) | HELP
    assert {option for option in options if option.startswith("--")} <= known


def test_every_setting_is_documented() -> None:
    """docs/settings.md names each variable that a setting is read from."""
    classes = [
        value
        for value in vars(settings).values()
        if isinstance(value, type) and dataclasses.is_dataclass(value) and value.__module__ == settings.__name__
    ]
    variables = {
        field.metadata["env"] for each in classes for field in dataclasses.fields(each) if "env" in field.metadata
    }
    assert variables, "pgtasks.settings has to name its environment variables"
    assert variables <= set(VARIABLE.findall(page("settings.md")))


def test_every_environment_variable_is_documented() -> None:
    """docs/settings.md names each variable that the code mentions, and no other."""
    text = "".join(path.read_text(encoding="utf-8") for path in python_files("pgtasks"))
    documented = set(VARIABLE.findall(page("settings.md")))
    assert set(VARIABLE.findall(text)) - documented == set(), "docs/settings.md lacks these"
    assert documented - set(VARIABLE.findall(text)) == set(), "nothing reads these"


def test_every_sql_function_and_view_is_documented() -> None:
    """docs/sql.md names each of them; those that only we call stand there as internal."""
    schema = schema_sql()
    triggers = set(re.findall(FUNCTION + r"\(\)\s+RETURNS trigger", schema, flags=re.IGNORECASE))
    functions = set(re.findall(FUNCTION, schema, flags=re.IGNORECASE)) - triggers
    views = set(re.findall(RELATION.replace("TABLE|", ""), schema, flags=re.IGNORECASE))
    documented = set(re.findall(r"pgtasks\.(\w+)", page("sql.md")))
    assert functions
    assert views
    assert (functions | views) - documented == set(), "docs/sql.md lacks these"
