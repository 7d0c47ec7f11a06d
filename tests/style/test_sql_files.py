"""One query per file: named, explained, used, and independent of any search path."""

import ast
import re
from pathlib import Path

import pytest

from tests.style.checkout import ROOT, python_files, schema_sql, sql_files

RELATION = r"CREATE\s+(?:TABLE|VIEW|MATERIALIZED VIEW)\s+pgtasks\.(\w+)"
FUNCTION = r"CREATE\s+(?:OR REPLACE\s+)?FUNCTION\s+pgtasks\.(\w+)"
# What queries are about besides the tables and views of the schema.
OTHER_NOUNS = {"bells", "clock", "database", "outcomes", "partitions", "schema", "server", "types"}
HEADER_LETTERS_MIN = 30


def stripped(text: str) -> str:
    """Return SQL without comments and with every literal emptied."""
    return re.sub(r"'(?:[^']|'')*'", "''", re.sub(r"--[^\n]*", "", text))


def own_tables() -> set[str]:
    """Return the names of our tables and views, as the migrations make them."""
    return set(re.findall(RELATION, schema_sql(), flags=re.IGNORECASE))


def own_functions() -> set[str]:
    """Return the names of our SQL functions, as the migrations make them."""
    return set(re.findall(FUNCTION, schema_sql(), flags=re.IGNORECASE))


def unqualified(text: str) -> list[str]:
    """Return the relations and functions that a query names without their schema."""
    code = stripped(text)
    steps = set(re.findall(r"(\w+)\s*(?:\([^()]*\)\s*)?AS\s+(?:NOT\s+)?(?:MATERIALIZED\s*)?\(", code))
    # In `extract(epoch FROM x)`, `IS DISTINCT FROM x` and `DO UPDATE SET` nothing is named.
    code = re.sub(r"\bextract\s*\(\s*\w+\s+FROM\b|\bDISTINCT\s+FROM\b", "", code, flags=re.IGNORECASE)
    code = re.sub(r"\b(?:DO|FOR|KEY)\s+UPDATE\b", "", code, flags=re.IGNORECASE)
    named = r"\b(?:FROM|JOIN|INTO|UPDATE|USING)\s+(?:ONLY\s+)?(?!LATERAL\b|UNNEST\b|STDIN\b)(\w+)\b(?!\s*[.(])"
    relations = [word for word in re.findall(named, code, flags=re.IGNORECASE) if word not in steps]
    inserted = re.findall(r"\bINTO\s+(\w+)\s*\(", code, flags=re.IGNORECASE)
    called = re.findall(r"(?<![.\w])(\w+)\s*\(", code)
    calls = [word for word in called if word in own_functions() and word not in steps]
    builtin = re.compile(r"pg_\w+|current_\w+")
    return [word for word in (*relations, *inserted, *calls) if not builtin.fullmatch(word)]


def test_every_query_is_named_noun_then_verb() -> None:
    """The noun is one of our tables or views; the verb says what happens to it."""
    tables = own_tables() | OTHER_NOUNS
    nouns = tables | {noun.removesuffix("s") for noun in tables}
    odd = [
        path.name for path in sql_files() if not any(re.fullmatch(rf"{noun}_[a-z][a-z_]*", path.stem) for noun in nouns)
    ]
    assert not odd, f"name each <noun>_<verb>.sql, with one of {sorted(nouns)}"


def test_every_query_is_used_by_a_statements_module() -> None:
    """The store's statement modules are the only readers of these files."""
    literals = {
        node.value.removesuffix(".sql")
        for path in python_files("pgtasks/store")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    unused = [path.name for path in sql_files() if path.stem not in literals]
    assert not unused


def test_there_are_queries() -> None:
    """The other tests here would pass on an empty folder."""
    assert sql_files()
    assert {"tasks", "leases", "history"} <= own_tables()


@pytest.mark.parametrize("path", sql_files(), ids=lambda path: path.stem)
def test_the_header_says_what_and_why(path: Path) -> None:
    """Before the query stands a comment: what, parameters, index, why this shape."""
    header = re.match(r"(?:--[^\n]*\n)+", path.read_text(encoding="utf-8"))
    assert header, f"{path.relative_to(ROOT)} does not begin with a comment"
    assert len(re.findall(r"[a-z]", header[0])) >= HEADER_LETTERS_MIN


@pytest.mark.parametrize("path", sql_files(), ids=lambda path: path.stem)
def test_every_name_carries_its_schema(path: Path) -> None:
    """Somebody else's search_path must not decide which table is meant."""
    assert unqualified(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", sql_files(), ids=lambda path: path.stem)
def test_a_file_holds_one_query(path: Path) -> None:
    """A second one would not get its own plan test."""
    assert ";" not in stripped(path.read_text(encoding="utf-8")).strip().removesuffix(";")


def test_a_name_without_its_schema_is_found() -> None:
    """What is qualified, a step of the query or built in passes; the rest does not."""
    good = "WITH due AS (SELECT 1 FROM pgtasks.tasks AS t) SELECT * FROM due, unnest(array[1])"
    assert unqualified(good) == []
    assert unqualified("SELECT 1 FROM tasks FOR UPDATE SKIP LOCKED") == ["tasks"]
    assert unqualified("INSERT INTO history (id) SELECT 1") == ["history"]
    assert unqualified("SELECT enqueue('a', extract(epoch FROM x))") == ["enqueue"]
