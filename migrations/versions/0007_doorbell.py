"""A cheaper trigger on new tasks: what it does is the same."""

from pgtasks.schema import run_sql_beside

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Run 0007_doorbell.up.sql."""
    run_sql_beside(__file__, "up")


def downgrade() -> None:
    """Run 0007_doorbell.down.sql."""
    run_sql_beside(__file__, "down")
