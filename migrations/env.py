"""What alembic runs around the migrations; `pgtasks.schema` decides on which connection."""

from alembic import context

from pgtasks.schema import VERSION_SCHEMA, VERSION_TABLE


def run() -> None:
    """Run the migrations inside the caller's transaction, or print them."""
    connection = context.config.attributes.get("connection")
    if connection is None and not context.is_offline_mode():
        raise SystemExit("run: pgtasks migrate")
    context.configure(
        connection=connection,
        dialect_name=None if connection else "postgresql",
        # The prologue belongs into the same transaction, so its begin and end are not alembic's.
        transactional_ddl=False,
        version_table=VERSION_TABLE,
        version_table_schema=VERSION_SCHEMA,
    )
    context.run_migrations()


run()
