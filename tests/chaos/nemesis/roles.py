"""Defaults of the workers' role that somebody has changed."""

from random import Random
from typing import ClassVar, LiteralString

from psycopg import sql

from tests.chaos.nemesis.fault import Fault


class _RoleDefaults(Fault):
    """Settings of the role for new sessions; all sessions end as they come and as they go, so that they count."""

    lane = "server"
    settings: ClassVar[dict[LiteralString, str]]

    def strike(self, rng: Random) -> None:
        """Set them for one to two leases."""
        try:
            self._alter("ALTER ROLE {role} SET {setting} = {text}")
            self.last(1.0, 2.0, rng)
        finally:
            self.undo()

    def undo(self) -> None:
        """Reset them."""
        self._alter("ALTER ROLE {role} RESET {setting}")

    def _alter(self, change: LiteralString) -> None:
        with self.target.cluster.admin() as admin:
            for setting, text in self.settings.items():
                parts = {"role": sql.Identifier(self.target.role), "setting": sql.Identifier(setting)}
                admin.execute(sql.SQL(change).format(**parts, text=text))
        self.target.cluster.terminate_all()


class SerializableRole(_RoleDefaults):
    """Every transaction is serializable, unless it says otherwise."""

    name = "role_serializable"
    settings: ClassVar[dict[LiteralString, str]] = {"default_transaction_isolation": "serializable"}


class ReadOnlyRole(_RoleDefaults):
    """Every transaction is read only: 25006, as on a server that was demoted."""

    name = "role_read_only"
    settings: ClassVar[dict[LiteralString, str]] = {"default_transaction_read_only": "on"}


class ImpatientRole(_RoleDefaults):
    """Statements, locks and pauses within transactions have very little time."""

    name = "role_timeouts"
    settings: ClassVar[dict[LiteralString, str]] = {
        "statement_timeout": "20ms",
        "lock_timeout": "5ms",
        "idle_in_transaction_session_timeout": "50ms",
    }
