"""How often a task's process was lost, and how many handlers of a worker are stuck."""

from pgtasks.schema import run_sql_beside

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Run 0003_isolation.up.sql."""
    run_sql_beside(__file__, "up")


def downgrade() -> None:
    """Run 0003_isolation.down.sql."""
    run_sql_beside(__file__, "down")
