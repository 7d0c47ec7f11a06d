"""Describes the `pgtasks` schema as text, the same on every supported version of PostgreSQL."""

import difflib
import re
from pathlib import Path

import psycopg

from tests.database import rows

PATH = Path(__file__).with_name("schema.txt")
UPDATE = "PGTASKS_UPDATE_SNAPSHOT"

# Day partitions come and go; everything else of the schema is fixed.
_OURS = "c.relnamespace = 'pgtasks'::regnamespace AND c.relname !~ '_[0-9]{8}(_|$)'"

_RELATIONS = f"""
SELECT c.relname,
    CASE c.relkind WHEN 'r' THEN 'table' WHEN 'p' THEN 'partitioned table' WHEN 'v' THEN 'view'
        WHEN 'S' THEN 'sequence' ELSE c.relkind::text END
    || CASE WHEN c.relispartition THEN ' partition ' || pg_get_expr(c.relpartbound, c.oid) ELSE '' END
    || coalesce(' partitioned by ' || pg_get_partkeydef(c.oid), '')
    || coalesce(' with (' || array_to_string(c.reloptions, ', ') || ')', '')
    || CASE c.relpersistence WHEN 'p' THEN '' ELSE ' persistence ' || c.relpersistence::text END
FROM pg_class c WHERE {_OURS} AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
"""
_COLUMNS = f"""
SELECT c.relname, '  ' || lpad(a.attnum::text, 2) || ' ' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
    || CASE WHEN a.attcollation = t.typcollation THEN '' ELSE ' collate ' || a.attcollation::regcollation END
    || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END
    || CASE a.attidentity WHEN '' THEN '' WHEN 'a' THEN ' identity always' ELSE ' identity by default' END
    || coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), '')
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE {_OURS} AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
ORDER BY a.attnum
"""
# From version 18 on, NOT NULL is a constraint too; here it stands with its column.
_CONSTRAINTS = f"""
SELECT c.relname, '  constraint ' || o.conname || ' ' || pg_get_constraintdef(o.oid)
FROM pg_class c JOIN pg_constraint o ON o.conrelid = c.oid
WHERE {_OURS} AND o.contype <> 'n' ORDER BY o.conname
"""
_INDEXES = f"""
SELECT c.relname, '  index ' || regexp_replace(pg_get_indexdef(i.indexrelid), '^CREATE ', '')
FROM pg_class c JOIN pg_index i ON i.indrelid = c.oid WHERE {_OURS} ORDER BY 2
"""
_TRIGGERS = f"""
SELECT c.relname, '  ' || pg_get_triggerdef(t.oid)
FROM pg_class c JOIN pg_trigger t ON t.tgrelid = c.oid WHERE {_OURS} AND NOT t.tgisinternal ORDER BY 2
"""
_SEQUENCES = f"""
SELECT c.relname, format('  %s from %s by %s, %s to %s%s', s.seqtypid::regtype, s.seqstart, s.seqincrement,
    s.seqmin, s.seqmax, CASE WHEN s.seqcycle THEN ', cycles' ELSE '' END)
FROM pg_class c JOIN pg_sequence s ON s.seqrelid = c.oid WHERE {_OURS}
"""
_FUNCTIONS = """
SELECT p.oid::regprocedure::text, format(E'function %s\n  returns %s\n  %s %s%s%s%s\n  body %s',
    pg_get_function_arguments(p.oid), pg_get_function_result(p.oid), l.lanname,
    CASE p.provolatile WHEN 'i' THEN 'immutable' WHEN 's' THEN 'stable' ELSE 'volatile' END,
    CASE WHEN p.prosecdef THEN ', security definer' ELSE '' END,
    coalesce(', set ' || array_to_string(p.proconfig, ', set '), ''),
    CASE WHEN EXISTS (
        SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) g WHERE g.grantee = 0
    ) THEN ', for everybody' ELSE ', for those who are granted it' END,
    md5(p.prosrc))
FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang WHERE p.pronamespace = 'pgtasks'::regnamespace
ORDER BY 1
"""
_VIEWS = f"""
SELECT c.relname, pg_get_viewdef(c.oid) FROM pg_class c WHERE {_OURS} AND c.relkind = 'v'
"""
_REST = """
SELECT 'rest', 'type ' || t.typname FROM pg_type t
WHERE t.typnamespace = 'pgtasks'::regnamespace AND t.typrelid = 0 AND t.typelem = 0
"""
_PARTS = (_RELATIONS, _COLUMNS, _CONSTRAINTS, _INDEXES, _TRIGGERS, _SEQUENCES)


def describe(dsn: str) -> str:
    """Return the description of a database's `pgtasks` schema; without one, an empty text."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET search_path = pg_catalog")
        if rows(connection, "SELECT to_regnamespace('pgtasks') IS NULL") == [(True,)]:
            return ""
        sections: dict[str, list[str]] = {}
        for query in _PARTS:
            for name, line in rows(connection, query):
                sections.setdefault(name, []).append(line)
        for name, definition in rows(connection, _VIEWS):
            # Which columns carry their table's alias depends on the server's version.
            sections[name].append(re.sub(r"\b[a-z]+\.(?=[a-z])", "", definition).rstrip(";"))
        for name, text in (*rows(connection, _FUNCTIONS), *rows(connection, _REST)):
            sections.setdefault(name, []).append(text)
    return "\n".join("\n".join([name, *lines, ""]) for name, lines in sorted(sections.items()))


def difference(expected: str, found: str) -> str:
    """Return the lines that differ, as a diff; empty when none does."""
    return "\n".join(difflib.unified_diff(expected.splitlines(), found.splitlines(), "expected", "found", lineterm=""))
