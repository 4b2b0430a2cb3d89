"""The team's database in the campaign: a PostgreSQL, and a synchronous standby for a failover.

Both keep their folders, and which of them is the primary changes. Workers know both. One worker
reaches them through relays, which can cut a connection at a commit."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import psycopg

from tests.doubles.postgres import PostgresServer, Relay
from tests.scratch import scratch

_REPLICATED = ("wal_level=replica", "max_wal_senders=4", "max_connections=120")
NAME = "team"
_SOCKET = ".s.PGSQL.5432"
_CUT_SECONDS = 10.0


class TeamDatabase:
    """The started primary at `primary`, with the database `NAME`, and an optional `standby`.
    Methods block unless they are coroutines."""

    def __init__(self, folders: Sequence[Path], *settings: str) -> None:
        self._folders = list(folders)
        self._settings = (*_REPLICATED, *settings)
        self.primary = PostgresServer(self._folders[0], *self._settings)
        self.primary.start()
        self._ask("postgres", f"CREATE DATABASE {NAME}")
        self.standby: PostgresServer | None = None
        self.relays: list[Relay] = []
        self._relayed: list[Path] = []

    @property
    def dsn(self) -> str:
        """The address with all folders."""
        return _dsn(self._folders)

    @property
    def relayed_dsn(self) -> str:
        """The same through the relays."""
        return _dsn(self._relayed)

    def attach_standby(self) -> None:
        """Create a synchronous standby of the primary in the other folder. Commits wait for it from
        now on."""
        folder = next(one for one in self._folders if one != self.primary.sockets)
        shutil.rmtree(folder / "data", ignore_errors=True)
        self.standby = PostgresServer(folder, *self._settings, copy_of=self.primary)
        self.standby.start()
        self._wait_for("*")

    def restart(self) -> None:
        """Start the stopped primary."""
        self.primary.start()

    def stop(self) -> None:
        """Stop the primary as by a crash."""
        self.primary.stop(signal.SIGQUIT)

    def fail_over(self) -> None:
        """Promote the standby to the primary. There is no standby after that."""
        assert self.standby is not None
        self.standby.promote()
        self.primary, self.standby = self.standby, None
        self._wait_for("")

    def cut(self, rng: random.Random) -> int:
        """End some of the workers' connections like an administrator. Return their number."""
        query = "SELECT pid FROM pg_stat_activity WHERE datname = %s AND pid != pg_backend_pid()"
        with psycopg.connect(self.primary.dsn("postgres"), autocommit=True) as db:
            pids = [pid for (pid,) in db.execute(query, (NAME,)).fetchall()]
            chosen = [pid for pid in pids if rng.random() < 0.4]
            for pid in chosen:
                db.execute("SELECT pg_terminate_backend(%s)", (pid,))
        return len(chosen)

    async def cut_answer(self) -> bool:
        """Cut a relayed connection when the next commit is answered, before its client gets the
        answer. Return True if there was one in time."""
        relay = self.relays[self._folders.index(self.primary.sockets)]
        relay.cut_at_answer(b"COMMIT")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CUT_SECONDS):
                await relay.cut.wait()
        return relay.cut.is_set()

    @contextlib.asynccontextmanager
    async def relaying(self) -> AsyncIterator[None]:
        """Run a relay in front of each folder."""
        async with contextlib.AsyncExitStack() as stack:
            for folder in self._folders:
                relay = Relay(str(folder / _SOCKET))
                place = stack.enter_context(scratch())
                listening = await asyncio.start_unix_server(relay.serve, place / _SOCKET)
                await stack.enter_async_context(listening)
                self.relays.append(relay)
                self._relayed.append(place)
            yield
            for relay in self.relays:
                relay.close()
                await relay.wait_closed()

    def close(self) -> None:
        """Stop both."""
        for server in (self.standby, self.primary):
            if server is not None:
                server.stop(signal.SIGQUIT)

    def _wait_for(self, standbys: str) -> None:
        self._ask("postgres", f"ALTER SYSTEM SET synchronous_standby_names = '{standbys}'")
        self._ask("postgres", "SELECT pg_reload_conf()")

    def _ask(self, database: str, statement: str) -> None:
        with psycopg.connect(self.primary.dsn(database), autocommit=True) as db:
            db.execute(statement.encode())


@contextlib.contextmanager
def team_database(*settings: str, on_disk: bool = False) -> Iterator[TeamDatabase]:
    """Run a primary without a standby."""
    with scratch(on_disk=on_disk) as one, scratch(on_disk=on_disk) as other:
        database = TeamDatabase([one, other], *settings)
        try:
            yield database
        finally:
            database.close()


def _dsn(folders: Sequence[Path]) -> str:
    return f"postgresql://nanobot@/{NAME}?host={','.join(map(str, folders))}"
