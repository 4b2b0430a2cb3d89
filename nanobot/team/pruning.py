"""Forgetting what ended or failed long ago: beside the writer and a little at a time, so nobody
waits."""

from __future__ import annotations

from datetime import datetime, timedelta

from nanobot.bus.journal import KEEP_DAYS
from nanobot.bus.rows import WAITING_MESSAGES, WAITING_PARTS
from nanobot.bus.sql_queries import USED_DAYS
from nanobot.team.connection import DatabaseAddress

_AT_ONCE = 2_000
"""Rows that one transaction deletes."""

_ENDED = (
    ("inbox", f"NOT {WAITING_MESSAGES} AND received_at < %(horizon)s"),
    ("outbox", f"NOT {WAITING_PARTS} AND created_at < %(horizon)s"),
    ("turn", "state != 'running' AND started_at < %(horizon)s"),
    ("step", "NOT EXISTS (SELECT FROM turn WHERE id = turn_id AND state = 'running')"),
    ("button", "created_at < %(horizon)s"),
    ("prompt", "used_at < %(horizon)s"),
    ("used", "day < %(oldest)s"),
    ("rate", "minute < %(minute)s"),
)

_CONFIRMED = (
    "UPDATE outbox SET payload = NULL WHERE state = 'sent' AND payload IS NOT NULL"
    " AND created_at < %(day)s"
)
"""Texts of parts that may have failed after they were sent, and did not."""


async def prune(address: DatabaseAddress, now: datetime) -> None:
    """Forget what ended more than `KEEP_DAYS` before `now`, unless another worker does just that.
    No worker is needed for it: it can be done twice. Raises `StorageError`."""
    horizon = (now - timedelta(days=KEEP_DAYS)).isoformat()
    oldest = (now.date() - timedelta(days=USED_DAYS)).isoformat()
    yesterday = int((now - timedelta(days=1)).timestamp()) // 60
    values = {"horizon": horizon, "oldest": oldest, "minute": yesterday}
    with address.errors():
        async with await address.connect() as connection:
            lock = "SELECT pg_try_advisory_lock(hashtext('nanobot prune'))"
            if await (await connection.execute(lock)).fetchone() == (False,):
                return
            for table, ended in _ENDED:
                rows = f"SELECT ctid FROM {table} WHERE {ended} LIMIT {_AT_ONCE}"
                delete = f"DELETE FROM {table} WHERE ctid = ANY(ARRAY({rows})) AND {ended}"
                deleted = _AT_ONCE
                while deleted == _AT_ONCE:
                    deleted = (await connection.execute(delete.encode(), values)).rowcount
            day = (now - timedelta(days=1)).isoformat()
            await connection.execute(_CONFIRMED.encode(), {"day": day})
