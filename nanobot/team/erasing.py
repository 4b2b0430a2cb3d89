"""Erasing from a team's database: every text that people and models said passes a filter.

PostgreSQL keeps the old version of a changed row in its table, so tables that changed are rebuilt
afterwards; until that is done their names stand in `rebuild`, and erasing again goes on with it.
What it cannot reach: write-ahead logs, standbys and backups.
"""

from __future__ import annotations

import psycopg

from nanobot.bus.journal import Redact
from nanobot.bus.rows import KEYS, TEXTS
from nanobot.team.connection import DatabaseAddress, Row, storable


def erase(address: DatabaseAddress, redact: Redact) -> int:
    """Pass every stored text through `redact`; return how many changed. Others wait to write while
    a table is rebuilt. Blocks. Raises `StorageError`."""
    with address.errors(), address.connect_blocking() as connection:
        connection.execute("SET idle_in_transaction_session_timeout = 0")
        changed = sum(_redact_column(connection, *place, redact) for place in TEXTS)
        for (table,) in connection.execute("SELECT name FROM rebuild").fetchall():
            connection.execute(f"VACUUM FULL {table}".encode())
            connection.execute("DELETE FROM rebuild WHERE name = %s", (table,))
        return changed


def _redact_column(
    connection: psycopg.Connection[Row], table: str, column: str, redact: Redact
) -> int:
    """One column, in a transaction of its own. A text that changes meanwhile is left alone."""
    keys = KEYS.get(table, "id")
    marks = ", ".join(["%s"] * len(keys.split(",")))
    also = ", revision = revision + 1" if table == "document" else ""
    change = f"UPDATE {table} SET {column} = %s{also} WHERE ({keys}) = ({marks}) AND {column} = %s"
    changed = 0
    with connection.transaction(), connection.cursor(name="texts") as texts:
        texts.execute(f"SELECT {column}, {keys} FROM {table} WHERE {column} != ''".encode())
        for text, *key in texts:
            new = storable(redact(text))
            if new != text:
                changed += connection.execute(change.encode(), (new, *key, text)).rowcount
        if changed:
            note = "INSERT INTO rebuild VALUES (%s) ON CONFLICT DO NOTHING"
            connection.execute(note, (table,))
    return changed
