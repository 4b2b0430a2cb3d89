"""Which worker has which scope: the table `lease`.

A scope without a row is free. A row without a worker is free as well, and says that the worker who
had it died, without handing anything over. Only who has a scope's lease handles its messages,
writes its files and sends what goes to its chats. A lease is given back in the order of the
worker's own writes, so that everything of the scope is stored before another worker can have it.

A name such as `channel:telegram` is a lease on what only one worker runs at a time.
"""

from __future__ import annotations

from collections.abc import Collection

from nanobot.bus.rows import WAITING_MESSAGES, WAITING_PARTS
from nanobot.team.connection import Connection, execute
from nanobot.team.postgres import Database

SINGLE = "channel:"
"""How the names of leases begin that are no scopes."""

MAY_BEGIN = """(state != 'received' OR coalesce(inbox.worker, 0) IN (0, %s)
    OR NOT EXISTS (SELECT FROM worker WHERE worker.id = inbox.worker))"""
"""Whether a worker, whose number it takes, may handle a message: where somebody waits for an answer
at a worker that lives, no other may."""

IS_LOST = "NOT EXISTS (SELECT FROM worker WHERE worker.id = helper.worker)"
"""Whether a helper went with its worker."""

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
    """What the worker `database.worker` has."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def free(
        self,
        named: Collection[str],
        limit: int,
        channels: Collection[str] = (),
        among: Collection[str] | None = None,
    ) -> list[str]:
        """Those of the scopes `named` that are free, then at most `limit` other free ones for which
        something is to be done, such as pending parts for `channels`; the one whose first message
        waits longest comes first. With `among`, only these and `named` are looked at: a look at all
        that waits takes longer the more it is. Raises `StorageError`."""
        query, values = _FREE, [sorted(named), self._database.worker or 0, list(channels)]
        if among is not None:
            query += " AND scope = ANY(%s)"
            values.append(sorted({*named, *among}))
        query += " GROUP BY scope ORDER BY 2 LIMIT %s"
        rows = await self._database.read(query, *values, len(named) + limit, after_writes=False)
        mine = sum(since < 0 for _, since in rows)
        return [scope for scope, _ in rows[: mine + limit]]

    async def claim(self, scopes: Collection[str]) -> dict[str, bool]:
        """Those of `scopes` that were free, and are this worker's now; whether their last worker
        died. Waits while the database is away: a claim that nobody knew of would never be given
        back."""
        names = sorted(scopes)  # in one order, so that no two workers wait for each other

        async def work(db: Connection) -> dict[str, bool]:
            rows = await execute(db, _CLAIM, self._database.worker, names)
            return dict(await rows.fetchall())

        claimed: dict[str, bool] = await self._database.run(work, until_stored=True)
        return claimed

    async def release(self, scopes: Collection[str]) -> None:
        """Give scopes back, once everything that was written before is stored. Waits while the
        database is away."""
        await self._end("DELETE FROM lease", scopes)

    async def put_back(self, scopes: Collection[str]) -> None:
        """Leave scopes, whose last worker died, to another one as they were found."""
        await self._end("UPDATE lease SET worker = NULL", scopes)

    async def _end(self, statement: str, scopes: Collection[str]) -> None:
        query, names = f"{statement} WHERE scope = ANY(%s) AND worker = %s", sorted(scopes)

        async def work(db: Connection) -> None:
            await execute(db, query, names, self._database.worker)

        if names:
            await self._database.run(work, until_stored=True)

    async def alive(self) -> tuple[int, frozenset[int]]:
        """The newest number that any worker was given, and those of the workers that are not
        fenced. Raises `StorageError`."""
        ((newest,),) = await self._database.read("SELECT last_value FROM worker_id_seq")
        # Afterwards: who has that number is seen.
        rows = await self._database.read("SELECT id FROM worker")
        return newest, frozenset(number for (number,) in rows)
