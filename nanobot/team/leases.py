"""The table `lease`: which worker has which scope.

A scope without a row is free. A row without a worker is free too, and means that the last worker
died without handing over (`membership` decides that it is dead). Only the holder of a scope's lease
handles its messages, writes its files and sends to its chats. A lease is released in the order of
the worker's own writes, so everything of the scope is stored before another worker can have it.

A name such as `channel:telegram` is a lease on work that only one worker does at a time."""

from __future__ import annotations

from collections.abc import Collection

from nanobot.bus.rows import WAITING_MESSAGES, WAITING_PARTS
from nanobot.team.connection import Connection, execute
from nanobot.team.postgres import Database

SINGLE = "channel:"
"""Prefix of leases that are not scopes."""

MAY_BEGIN = """(state != 'received' OR coalesce(inbox.worker, 0) IN (0, %s)
    OR NOT EXISTS (SELECT FROM worker WHERE worker.id = inbox.worker))"""
"""Condition: the worker with this number may handle a message. If a client awaits the answer at a
living worker, only that one may."""

IS_LOST = "NOT EXISTS (SELECT FROM worker WHERE worker.id = helper.worker)"
"""Condition: the worker of a subagent is gone."""

_FREE = f"""
    SELECT scope, min(since) FROM (
        SELECT scope, -1 AS since FROM unnest(%s::text[]) AS scope
        UNION ALL SELECT scope, min(id) FROM inbox WHERE {WAITING_MESSAGES}
            AND {MAY_BEGIN} GROUP BY scope
        UNION ALL SELECT scope, 0 FROM outbox WHERE {WAITING_PARTS} AND channel = ANY(%s)
        UNION ALL SELECT scope, 0 FROM unfiled
        UNION ALL SELECT scope, 0 FROM helper WHERE {IS_LOST}
    ) AS wanted
    WHERE NOT EXISTS (
        SELECT FROM lease WHERE lease.scope = wanted.scope AND lease.worker IS NOT NULL
    )"""
_CLAIM = """
    INSERT INTO lease (scope, worker) SELECT scope, %s FROM unnest(%s::text[]) AS scope
    ON CONFLICT (scope) DO UPDATE SET worker = excluded.worker WHERE lease.worker IS NULL
    RETURNING scope, xmax != 0
"""


class Leases:
    """The leases of the worker `database.worker`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def free(
        self,
        named: Collection[str],
        limit: int,
        channels: Collection[str] = (),
        among: Collection[str] | None = None,
    ) -> list[str]:
        """Return the free scopes of `named`, then up to `limit` other free scopes with work, such
        as pending parts for `channels`, the longest waiting first. With `among`, only these and
        `named` are searched, because a search of all takes longer the more is pending. Raises
        `StorageError`."""
        query, values = _FREE, [sorted(named), self._database.worker or 0, list(channels)]
        if among is not None:
            query += " AND scope = ANY(%s)"
            values.append(sorted({*named, *among}))
        query += " GROUP BY scope ORDER BY 2 LIMIT %s"
        rows = await self._database.read(query, *values, len(named) + limit, after_writes=False)
        mine = sum(since < 0 for _, since in rows)
        return [scope for scope, _ in rows[: mine + limit]]

    async def claim(self, scopes: Collection[str]) -> dict[str, bool]:
        """Claim the free ones of `scopes`. Return the claimed scopes, and whether their last worker
        died. Waits while the database is unreachable: an unnoticed claim would never be
        released."""
        names = sorted(scopes)  # ordered, so that workers never deadlock

        async def work(db: Connection) -> dict[str, bool]:
            rows = await execute(db, _CLAIM, self._database.worker, names)
            return dict(await rows.fetchall())

        claimed: dict[str, bool] = await self._database.run(work, until_stored=True)
        return claimed

    async def release(self, scopes: Collection[str]) -> None:
        """Release scopes after all earlier writes are stored. Waits while the database is
        unreachable."""
        await self._end("DELETE FROM lease", scopes)

    async def put_back(self, scopes: Collection[str]) -> None:
        """Release scopes whose last worker died, in the same state, for another worker."""
        await self._end("UPDATE lease SET worker = NULL", scopes)

    async def _end(self, statement: str, scopes: Collection[str]) -> None:
        query, names = f"{statement} WHERE scope = ANY(%s) AND worker = %s", sorted(scopes)

        async def work(db: Connection) -> None:
            await execute(db, query, names, self._database.worker)

        if names:
            await self._database.run(work, until_stored=True)

    async def alive(self) -> tuple[int, frozenset[int]]:
        """Return the newest number of any worker, and the numbers of all workers not fenced. Raises
        `StorageError`."""
        ((newest,),) = await self._database.read("SELECT last_value FROM worker_id_seq")
        # Read afterwards, so the worker with that number is included.
        rows = await self._database.read("SELECT id FROM worker")
        return newest, frozenset(number for (number,) in rows)
