"""Which fires a person asked for, and schedulers that are woken only when a schedule was changed."""

from pgtasks.schema import run_sql_beside

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Run 0004_backfills.up.sql."""
    run_sql_beside(__file__, "up")


def downgrade() -> None:
    """Run 0004_backfills.down.sql."""
    run_sql_beside(__file__, "down")
