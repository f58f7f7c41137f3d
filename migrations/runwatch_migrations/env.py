"""Alembic's entry: runs the migrations on a connection of the service, or on a database's URL."""

import sqlalchemy as sa
from alembic import context

from runwatch_server.all_tables import metadata


def _run(connection: sa.Connection) -> None:
    context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
    with context.begin_transaction():
        context.run_migrations()


_given = context.config.attributes.get("connection")
if isinstance(_given, sa.Connection):
    _run(_given)
else:
    _url = context.config.get_main_option("sqlalchemy.url")
    assert _url is not None, "give a connection in `attributes`, or `sqlalchemy.url`"
    with sa.create_engine(_url).begin() as _connection:
        _run(_connection)
