"""This process as a worker of a team, and the fence that stops a worker without contact.

Each process makes a new row, whose number is the worker's epoch. The row is valid for `TTL` seconds
and a thread renews it. A worker whose row expired is fenced: others delete the row, and with it all
claims of the worker. A fenced worker never returns under its number. Its process ends at once, and
its supervisor restarts it.

Invariants:

- A transaction of a worker holds its row `FOR KEY SHARE` (see `nanobot.team.postgres`). Deleting
  the row waits for such transactions, and later ones find no row: a fenced worker stores nothing.
- `deadline` is before the moment at which others may delete the row: it counts from before the
  renewal was sent, by a clock that runs while the machine sleeps.
- `wait_until_valid` precedes each action outside the database (a tool's effect, a request to a
  platform, a change of a shared file), so a worker without contact finishes at most one such step.
  It returns once the row is renewed, or never: the process ends.

After an outage all workers get time to renew. A worker fences others only if its own row and its
database were there during the last `TTL` seconds.

A standby that replaced the database has a new timeline and may lack the last commits, so each
worker ends and starts again from the stored state."""

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
    limit_wait,
)

TTL = 6.0
"""Seconds after its last sign of life for which a worker counts as alive."""

RENEW_SECONDS = 1.0
_ANSWER_SECONDS = 3
"""Timeout of the server. A slower one may have been stopped and replaced by its standby."""
_MARGIN = 1.0
"""Seconds by which a worker stops before others may take over: longer than one step takes."""

_JOIN = """
    WITH alone AS MATERIALIZED (SELECT pg_advisory_xact_lock(hashtext('nanobot join')))
    INSERT INTO worker (id, name, version, until) OVERRIDING SYSTEM VALUE
    SELECT setval('worker_id_seq',
            greatest(nextval('worker_id_seq'), extract(epoch FROM clock_timestamp())::bigint)),
        %s, %s, clock_timestamp() + make_interval(secs => %s) FROM alone
    RETURNING id, left(pg_walfile_name(pg_current_wal_lsn()), 8)
"""
"""Numbers grow and follow the time, so a restored or emptied database gives none out twice."""

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
"""Exit code of a fenced worker: `EX_TEMPFAIL`, start it again."""


def boot_time() -> float:
    """Return seconds since the machine started, including sleep."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def end_process(reason: str) -> None:
    """End this process at once, without waiting for other threads."""
    end_at_once(f"this worker is stopping: {reason}. Start it again.", EXIT_CODE)


class Membership:
    """The row of this process in the table `worker` of the database at `address`.

    `fenced` is called when the row is gone, in the thread that noticed it, and should not return.
    `now` is the clock of the deadlines. `join` and `leave` block. All other methods may be called
    from any thread."""

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
        """Become a worker and return its number. Fence the worker `predecessor`, whose process has
        certainly ended, at once. Raises `StorageError`."""
        sent = self._now()
        with (
            self._address.errors(),
            self._connect() as db,
            limit_wait(db, _ANSWER_SECONDS),
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
        """Stop renewing and remove the row. Call it after all claims are released."""
        self._leaving.set()
        if self._thread is not None:
            self._thread.join()
        try:
            with self._connect() as db, limit_wait(db, _ANSWER_SECONDS):
                db.execute("DELETE FROM worker WHERE id = %s", (self.id,))
        except psycopg.Error as error:
            said = self._address.error(error)
            logger.warning("this worker stays listed for {:.0f} seconds: {}", TTL, said)

    @property
    def is_valid(self) -> bool:
        """True while others consider this worker alive."""
        return self._now() < self._deadline

    def end_waits(self) -> None:
        """Make `wait_until_valid` raise instead of waiting, because this process ends."""
        with self._renewed:
            self._is_ending = True
            self._renewed.notify_all()

    def wait_until_valid(self) -> None:
        """Return when others consider this worker alive, usually at once. Blocks while the database
        is unreachable. Raises `StorageError` if the process ends."""
        if self._now() < self._deadline:
            return
        logger.warning("waiting: this worker has lost contact with the database")
        with self._renewed:
            while self._now() >= self._deadline:
                if self._is_ending:
                    raise StorageError(
                        self._address.place, "it is unreachable, and nanobot is stopping"
                    )
                self._renewed.wait(1.0)

    def _extend(self, sent: float) -> None:
        with self._renewed:
            if self._now() >= self._deadline:
                self._steady_since = self._now()
            self._deadline = sent + TTL - _MARGIN
            self._renewed.notify_all()

    def _renew_forever(self) -> None:
        while not self._leaving.wait(self._renew_seconds / 4):  # pause before a reconnect
            try:
                with self._connect() as db:
                    while not self._leaving.wait(self._renew_seconds):
                        with limit_wait(db, _ANSWER_SECONDS):
                            ended = self._renew(db)
                        if ended:
                            self._fenced(ended)
                            return
            except psycopg.Error as error:
                if self.is_valid:
                    said = self._address.error(error)
                    logger.debug("can't renew the worker's row: {}", said)

    def _connect(self) -> psycopg.Connection[Row]:
        db = psycopg.connect(self._dsn, autocommit=True)
        try:
            with limit_wait(db, _ANSWER_SECONDS):
                # Poolers reject `options`, and the address may have the owner's.
                db.execute(f"SET statement_timeout = '{_ANSWER_SECONDS}s'".encode())
        except BaseException:
            db.close()
            raise
        return db

    def _renew(self, db: psycopg.Connection[Row]) -> str:
        """Renew the row and fence expired workers. Return why this worker must end, or an empty
        string."""
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
                logger.warning(
                    "worker {} ({}) is dead, and other workers are taking over", number, name
                )
        return ""
