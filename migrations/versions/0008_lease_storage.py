"""Leases are stored as they are: they live too shortly for compression to pay."""

from pgtasks.schema import run_sql_beside

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Run 0008_lease_storage.up.sql."""
    run_sql_beside(__file__, "up")


def downgrade() -> None:
    """Run 0008_lease_storage.down.sql."""
    run_sql_beside(__file__, "down")
