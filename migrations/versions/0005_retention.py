"""History and failed attempts that go after a time, and queues that keep no history at all."""

from pgtasks.schema import run_sql_beside

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Run 0005_retention.up.sql."""
    run_sql_beside(__file__, "up")


def downgrade() -> None:
    """Run 0005_retention.down.sql."""
    run_sql_beside(__file__, "down")
