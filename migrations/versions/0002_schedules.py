"""Cron schedules, and one row for each of their fires."""

from pgtasks.schema import run_sql_beside

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Run 0002_schedules.up.sql."""
    run_sql_beside(__file__, "up")


def downgrade() -> None:
    """Run 0002_schedules.down.sql."""
    run_sql_beside(__file__, "down")
