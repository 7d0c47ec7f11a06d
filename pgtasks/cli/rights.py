"""What to do when a role lacks a right: the kind of role that may do what a command does."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from pgtasks.errors import DatabaseError
from pgtasks.store.granting import Kind

_KINDS: dict[str, Kind] = {
    "enqueue": "producer",
    "worker": "worker",
    "scheduler": "worker",
    "status": "reader",
    "top": "reader",
    "metrics": "reader",
    "doctor": "reader",
    "prune": "admin",
}
_GROUPS = {"tasks", "queues", "dead", "schedules", "workers"}
_READING = {"list", "show", "explain", "next", "history"}


def kind_for(argv: Sequence[str]) -> Kind | None:
    """Give the kind of role that may run a command, None for what the owner does or what is not known."""
    words = [word for word in argv if not word.startswith("-")]
    if len(words) > 1 and words[0] in _GROUPS:
        return "reader" if words[1] in _READING else "admin"
    return _KINDS.get(words[0]) if words else None


def remedy(kind: Kind | None, role: str | None) -> str:
    """Say what gives a role the rights of a kind."""
    if kind is None:
        return "docs/roles.md says which kind of role may"
    return f"let the schema's owner run: pgtasks grant {kind} {shlex.quote(role) if role else 'ROLE'} (docs/roles.md)"


def message_of(error: DatabaseError, argv: Sequence[str]) -> str:
    """Give who may not do what, and the remedy."""
    who = f"role {error.role}" if error.role else "this role"
    said = str(error).strip().splitlines() or ["permission denied"]
    return f"{who} may not do this: {said[0]} — {remedy(kind_for(argv), error.role)}"
