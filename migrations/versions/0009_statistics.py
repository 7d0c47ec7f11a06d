"""The planner keeps no statistics of task ids, which would lead it past their key."""

from pgtasks.schema import run_sql_beside

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Run 0009_statistics.up.sql."""
    run_sql_beside(__file__, "up")


def downgrade() -> None:
    """Run 0009_statistics.down.sql."""
    run_sql_beside(__file__, "down")
