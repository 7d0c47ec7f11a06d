"""The revisions of this version, so that a new one changes no test of how migrating works."""

from pgtasks import schema

ALL = tuple(schema.revisions())
FIRST, HEAD = ALL[0], ALL[-1]
NEXT = f"{int(HEAD) + 1:04}"
# What a migration from nothing says.
STEPS = [f"migrating to {number}: {name}" for number, name in schema.revisions().items()]
