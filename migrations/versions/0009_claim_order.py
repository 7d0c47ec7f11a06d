"""Only what names a queue finds tasks in the claim order."""

from pgtasks.schema import run_sql_beside

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Run 0009_claim_order.up.sql."""
    run_sql_beside(__file__, "up")


def downgrade() -> None:
    """Run 0009_claim_order.down.sql."""
    run_sql_beside(__file__, "down")
