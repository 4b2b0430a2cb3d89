"""This process as one of the workers of a team, and the fence that keeps a worker which lost touch
from doing harm.

A worker is a row, made anew by each process, whose number is the worker's epoch. The row is valid
for `TTL` seconds at a time and is renewed by a thread of its own. A worker whose row ran out is
fenced: others delete the row, and with it every claim of the worker. A fenced worker never comes
back under its number; its process ends at once and is started again by what supervises it.

Invariants:

- A transaction of a worker holds its row `FOR KEY SHARE` (see `nanobot.team.postgres`). Deleting
  the row waits for such transactions, and every later one finds no row: a fenced worker stores
  nothing.
- `deadline` lies before the moment at which others may delete the row: it counts from before the
  renewal was sent, by a clock that goes on while the machine sleeps.
- What acts outside the database (a tool's effect, a request to a platform, a change of a shared
  file) is preceded by `wait_until_valid`, so a worker that lost touch finishes at most one such
  step. It returns once the row is renewed, or never: the process ends.

After an outage all workers get the time to renew before any of them is fenced: nobody fences
another whose own row, or whose database, was not there all along for the last `TTL` seconds.

A database that was replaced by its standby has a new timeline. Whatever the standby had not got is
undone then, so each worker ends and begins anew with what is stored.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

import psycopg
from loguru import logger
from psycopg.conninfo import make_conninfo

import nanobot
from nanobot.errors import StorageError
from nanobot.tasks import end_at_once
from nanobot.team.connection import (
    END_SESSIONS_OF_THE_DEAD,
    DatabaseAddress,
    Row,
    answered_within,
)

TTL = 6.0
"""Seconds for which a worker is taken to be alive after its last sign of life."""

RENEW_SECONDS = 1.0
_ANSWER_SECONDS = 3
"""A server that needs longer may be one that was stopped, and whose standby has taken over."""
_MARGIN = 1.0
"""Seconds by which a worker stops before others may take over: more than one step takes."""

_JOIN = """
    WITH alone AS MATERIALIZED (SELECT pg_advisory_xact_lock(hashtext('nanobot join')))
    INSERT INTO worker (id, name, version, until) OVERRIDING SYSTEM VALUE
    SELECT setval('worker_id_seq',
            greatest(nextval('worker_id_seq'), extract(epoch FROM clock_timestamp())::bigint)),
        %s, %s, clock_timestamp() + make_interval(secs => %s) FROM alone
    RETURNING id, left(pg_walfile_name(pg_current_wal_lsn()), 8)
"""
"""Numbers grow, and go with the time: a database that is restored, or emptied, gives out none again
that somebody had since."""

_RENEW = """
    UPDATE worker SET until = clock_timestamp() + make_interval(secs => %s)
    WHERE id = %s RETURNING left(pg_walfile_name(pg_current_wal_lsn()), 8)
"""
_FENCE = """
    DELETE FROM worker WHERE id IN (
        SELECT id FROM worker WHERE until < clock_timestamp()
        AND pg_postmaster_start_time() < clock_timestamp() - make_interval(secs => %s)
        FOR UPDATE SKIP LOCKED
    ) RETURNING id, name
"""

EXIT_CODE = 75
"""How a fenced worker ends: `EX_TEMPFAIL`, start it again."""


def boot_time() -> float:
    """Seconds since the machine was started, those in which it slept included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def end_process(reason: str) -> None:
    """End at once, whatever other threads are about to do."""
    end_at_once(f"this worker stops: {reason}. Start it again.", EXIT_CODE)


class Membership:
    """The row of this process in the table `worker` of the database at `address`.

    `fenced` is called, in the thread that noticed it, when the row is gone; it should not return.
    `now` gives the seconds that deadlines count by. `join` and `leave` block; the other methods may
    be called from any thread.
    """

    def __init__(
        self,
        address: DatabaseAddress,
        name: str = "",
        *,
        fenced: Callable[[str], None] = end_process,
        now: Callable[[], float] = boot_time,
        renew_seconds: float = RENEW_SECONDS,
    ) -> None:
        self._dsn = make_conninfo(
            address.conninfo,
            application_name="nanobot membership",
            connect_timeout=_ANSWER_SECONDS,
            tcp_user_timeout=1000 * _ANSWER_SECONDS,
        )
        self._address = address
        self.name = name or socket.gethostname()
        self.id = 0
        self._fenced, self._now, self._renew_seconds = fenced, now, renew_seconds
        self._deadline = self._steady_since = 0.0
        self._renewed = threading.Condition()
        self._is_ending = False
        self._leaving = threading.Event()
        self._thread: threading.Thread | None = None

    def join(self, predecessor: int = 0) -> int:
        """Become a worker; its number. The worker `predecessor`, whose process has certainly ended,
        is fenced at once. Raises `StorageError`."""
        sent = self._now()
        with (
            self._address.errors(),
            self._connected() as db,
            answered_within(db, _ANSWER_SECONDS),
        ):
            if predecessor:
                db.execute("DELETE FROM worker WHERE id = %s", (predecessor,))
            about = (self.name, nanobot.__version__, TTL)
            row = db.execute(_JOIN, about).fetchone()
        assert row is not None
        self.id, self._address.timeline = row
        self._extend(sent)
        self._thread = threading.Thread(target=self._renew_forever, name="membership", daemon=True)
        self._thread.start()
        return self.id

    def leave(self) -> None:
        """Stop renewing and remove the row; for when all claims were given back."""
        self._leaving.set()
        if self._thread is not None:
            self._thread.join()
        try:
            with self._connected() as db, answered_within(db, _ANSWER_SECONDS):
                db.execute("DELETE FROM worker WHERE id = %s", (self.id,))
        except psycopg.Error as error:
            said = self._address.error(error)
            logger.warning("this worker stays listed for {:.0f} seconds: {}", TTL, said)

    @property
    def is_valid(self) -> bool:
        """Whether others still take this worker to be alive."""
        return self._now() < self._deadline

    def end_waits(self) -> None:
        """From now on `wait_until_valid` raises in place of waiting: this process ends."""
        with self._renewed:
            self._is_ending = True
            self._renewed.notify_all()

    def wait_until_valid(self) -> None:
        """Return when others take this worker to be alive: at once, as a rule. Blocks while the
        database is out of reach. Raises `StorageError` where the process ends meanwhile."""
        if self._now() < self._deadline:
            return
        logger.warning("waiting: this worker has lost contact with the database")
        with self._renewed:
            while self._now() >= self._deadline:
                if self._is_ending:
                    raise StorageError(self._address.place, "it is unreachable, and nanobot stops")
                self._renewed.wait(1.0)

    def _extend(self, sent: float) -> None:
        with self._renewed:
            if self._now() >= self._deadline:
                self._steady_since = self._now()
            self._deadline = sent + TTL - _MARGIN
            self._renewed.notify_all()

    def _renew_forever(self) -> None:
        while not self._leaving.wait(self._renew_seconds / 4):
            try:
                with self._connected() as db:
                    while not self._leaving.wait(self._renew_seconds):
                        with answered_within(db, _ANSWER_SECONDS):
                            ended = self._renew(db)
                        if ended:
                            self._fenced(ended)
                            return
            except psycopg.Error as error:
                if self.is_valid:
                    said = self._address.error(error)
                    logger.debug("can't renew the worker's row: {}", said)

    def _connected(self) -> psycopg.Connection[Row]:
        db = psycopg.connect(self._dsn, autocommit=True)
        try:
            with answered_within(db, _ANSWER_SECONDS):
                # Poolers take no `options`, and those of the address are the owner's.
                db.execute(f"SET statement_timeout = '{_ANSWER_SECONDS}s'".encode())
        except BaseException:
            db.close()
            raise
        return db

    def _renew(self, db: psycopg.Connection[Row]) -> str:
        """Give a sign of life, and fence who gives none; why this worker has to end, if so."""
        sent = self._now()
        row = db.execute(_RENEW, (TTL, self.id)).fetchone()
        if row is None:
            return "other workers assumed that it was dead and took over its work"
        if row[0] != self._address.timeline:
            return "the database was replaced by its standby"
        self._extend(sent)
        if sent - self._steady_since > TTL:
            db.execute(END_SESSIONS_OF_THE_DEAD)
            for number, name in db.execute(_FENCE, (TTL,)).fetchall():
                logger.warning("worker {} ({}) is dead, and other workers take over", number, name)
        return ""
