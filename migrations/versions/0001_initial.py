"""The live queue, its leases, what became of each task, and the SQL contract."""

from pgtasks.schema import run_sql_beside

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Run 0001_initial.up.sql."""
    run_sql_beside(__file__, "up")


def downgrade() -> None:
    """Run 0001_initial.down.sql."""
    run_sql_beside(__file__, "down")
