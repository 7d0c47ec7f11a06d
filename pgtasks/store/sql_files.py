"""The queries' texts, one file each, read once."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def sql(name: str) -> str:
    """Give the text of ``pgtasks/sql/<name>.sql``, verbatim."""
    return files("pgtasks").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
