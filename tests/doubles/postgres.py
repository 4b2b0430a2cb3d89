"""A real PostgreSQL in a temporary folder, only on a Unix socket, and a relay in front of it that
loses answers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

from nanobot.team import schema
from nanobot.team.connection import DatabaseAddress
from tests.scratch import scratch

_SETTINGS = (
    "listen_addresses=",
    "shared_buffers=16MB",
    "max_connections=60",
    "wal_level=minimal",
    "max_wal_senders=0",
    "autovacuum=off",
    "deadlock_timeout=100ms",
    "log_min_messages=panic",
)
_PATIENCE = 60.0


def binary(name: str) -> str:
    """Return the newest installed server program of this name, or an empty text."""
    folders = Path("/usr/lib/postgresql").glob("*/bin")
    places = sorted(map(str, folders), key=lambda place: int(Path(place).parent.name), reverse=True)
    return shutil.which(name, path=os.pathsep.join((*places, os.environ.get("PATH", "")))) or ""


def ordinary_user() -> tuple[int | None, int | None]:
    """Return user and group for a subprocess in place of root, which PostgreSQL rejects."""
    if os.geteuid() != 0:
        return None, None
    users = {entry.pw_name: (entry.pw_uid, entry.pw_gid) for entry in pwd.getpwall()}
    return users.get("postgres") or users["nobody"]


class PostgresServer:
    """A cluster in `folder`, which only its user may enter. `extra`: more settings. `copy_of`: the
    running primary of this standby."""

    missing = "" if binary("initdb") else "no PostgreSQL server is installed"
    """Reason why there is none, or an empty text."""

    def __init__(self, folder: Path, *extra: str, copy_of: PostgresServer | None = None) -> None:
        self.data, self.sockets = folder / "data", folder
        self._settings = (*_SETTINGS, *extra)
        self._user, self._group = ordinary_user()
        self._numbers = count(1)
        self._template = ""
        self._process: subprocess.Popen[bytes] | None = None
        if self._user is not None and self._group is not None:
            os.chown(folder, self._user, self._group)
        if copy_of is None:
            made = ("-U", "nanobot", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
            self._run("initdb", *made)
        else:
            place = ("-h", str(copy_of.sockets), "-U", "nanobot")
            self._run("pg_basebackup", "-R", "-c", "fast", "--no-sync", *place)

    def start(self, expects: str = "") -> None:
        """Start it if it does not run. It then accepts connections, or rejects them with the word
        that it `expects`."""
        if self._process is not None:
            return
        options = [word for setting in self._settings for word in ("-c", setting)]
        command = [binary("postgres"), "-D", str(self.data), "-k", str(self.sockets)]
        self._process = subprocess.Popen(
            [*command, *options], user=self._user, group=self._group, cwd=self.sockets
        )
        ends = time.monotonic() + _PATIENCE
        while True:
            try:
                psycopg.connect(self.dsn("postgres")).close()
            except psycopg.OperationalError as error:
                if expects and expects in str(error):
                    return
                if time.monotonic() > ends or self._process.poll() is not None:
                    raise
                time.sleep(0.02)  # it has no other way to say that it is ready
            else:
                return

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it. `SIGINT`: at once, but orderly. `SIGQUIT`: like a crash (`immediate`)."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(_PATIENCE)
            self._process = None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all processes, the first one first."""
        if self._process is not None:
            parent = self._process.pid
            self._process.send_signal(number)
            children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
            for pid in map(int, children):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    def promote(self) -> None:
        """Promote a standby to a primary."""
        self._run("pg_ctl", "promote", "-w", "-t", str(round(_PATIENCE)))

    def _run(self, program: str, *arguments: str) -> None:
        """Run a program on this cluster, as its user."""
        subprocess.run(
            [binary(program), "-D", str(self.data), *arguments],
            user=self._user,
            group=self._group,
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=self.sockets,
        )

    def dsn(self, database: str, *, sockets: Path | None = None) -> str:
        """Return the address of a database, or of a relay at `sockets` in front of it."""
        return f"postgresql://nanobot@/{database}?host={sockets or self.sockets}"

    def create(self, template: str = "template0") -> str:
        """Create a database as a copy of `template`, and return its name."""
        name = f"d{next(self._numbers)}"
        with psycopg.connect(self.dsn("postgres"), autocommit=True) as connection:
            how = f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy"
            connection.execute(how.encode())
        return name

    def create_prepared(self) -> str:
        """Create a database with a team's tables, and return its name."""
        if not self._template:
            self._template = self.create()
            schema.prepare(DatabaseAddress(self.dsn(self._template)))
        return self.create(self._template)

    def drop(self, name: str) -> None:
        """Remove a database, even if it is in use."""
        with psycopg.connect(self.dsn("postgres"), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@contextlib.contextmanager
def running_postgres(*settings: str) -> Iterator[PostgresServer]:
    """Run a server."""
    with scratch() as folder:
        server = PostgresServer(folder, *settings)
        server.start()
        try:
            yield server
        finally:
            server.stop()


class Relay:
    """Forwards bytes between clients and a server with its socket at `target`."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._words, self._pass_on, self._hang_up = b"", False, True
        self._lose = b""
        self.on_cut: Callable[[], object] = lambda: None
        """Called after a connection was cut, before its client knows."""
        self.cut = asyncio.Event()
        """Set after a connection was cut since `cut_at`."""
        self._clients: dict[asyncio.StreamWriter, asyncio.Task[Any] | None] = {}
        self._is_closed = False

    def cut_at(self, words: bytes, *, pass_on: bool, hang_up: bool = True) -> None:
        """Cut the next connection on which a client sends these bytes.

        With `pass_on` the bytes are forwarded, so only the answer is lost. Without `hang_up` the
        server is not notified."""
        self._words, self._pass_on, self._hang_up = words, pass_on, hang_up
        self.cut.clear()

    def cut_at_answer(self, words: bytes) -> None:
        """Cut the next connection on which the server sends these bytes, without forwarding
        them."""
        self._lose = words
        self.cut.clear()

    def cut_now(self) -> None:
        """Cut all connections."""
        for client in self._clients:
            client.transport.abort()

    def close(self) -> None:
        """Cut all connections, including later ones."""
        self._is_closed = True
        self.cut_now()

    async def wait_closed(self) -> None:
        """Wait until nothing is forwarded any more."""
        for task in [*self._clients.values()]:
            if task is not None:
                await asyncio.wait([task])

    async def serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """Forward one connection."""
        if self._is_closed:
            to_client.close()
            return
        self._clients[to_client] = asyncio.current_task()
        to_server: asyncio.StreamWriter | None = None
        answers: asyncio.Task[None] | None = None
        try:
            server, to_server = await asyncio.open_unix_connection(self._target)
            lost = asyncio.Event()
            answers = asyncio.create_task(self._answer(server, to_client, lost))
            await self._ask(client, to_server, lost)
            with contextlib.suppress(OSError):
                if lost.is_set() and not self._hang_up:
                    to_client.transport.abort()
                    self.cut.set()
                    await answers
                to_server.write_eof()  # the server runs the statement, then hangs up
            await answers
            if lost.is_set():
                self.on_cut()
                self.cut.set()
        except OSError:
            pass  # disconnects are expected
        finally:
            del self._clients[to_client]
            to_client.transport.abort()
            if to_server is not None:
                to_server.transport.abort()
            if answers is not None:
                answers.cancel()

    async def _ask(
        self, client: asyncio.StreamReader, to_server: asyncio.StreamWriter, lost: asyncio.Event
    ) -> None:
        while not lost.is_set() and (data := await client.read(65_536)):
            if self._words and self._words in data:
                self._words = b""
                lost.set()
            if self._pass_on or not lost.is_set():
                to_server.write(data)

    async def _answer(
        self, server: asyncio.StreamReader, to_client: asyncio.StreamWriter, lost: asyncio.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await server.read(65_536):
                if self._lose and self._lose in data:
                    self._lose = b""
                    lost.set()
                    to_client.transport.abort()
                if not lost.is_set():
                    to_client.write(data)
        if not lost.is_set():
            to_client.close()


@contextlib.asynccontextmanager
async def run_relay(server: PostgresServer) -> AsyncIterator[tuple[Relay, str]]:
    """Run a relay in front of a server, and yield it and the folder of its socket."""
    relay = Relay(str(server.sockets / ".s.PGSQL.5432"))
    with scratch() as folder:
        listening = await asyncio.start_unix_server(relay.serve, folder / ".s.PGSQL.5432")
        async with listening:
            try:
                yield relay, str(folder)
            finally:
                relay.close()
                await relay.wait_closed()
