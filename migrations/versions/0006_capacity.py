"""What limits a worker has beside its slots: those of its queues, and its child processes."""

from pgtasks.schema import run_sql_beside

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Run 0006_capacity.up.sql."""
    run_sql_beside(__file__, "up")


def downgrade() -> None:
    """Run 0006_capacity.down.sql."""
    run_sql_beside(__file__, "down")
