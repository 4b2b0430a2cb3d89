"""A real PgBouncer in front of a server of `tests.doubles.postgres`, only on a Unix socket."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator

from tests.doubles.postgres import PostgresServer, ordinary_user
from tests.scratch import scratch

_PATIENCE = 30.0
_CONFIG = """
[databases]
* = host={server} user=nanobot
[pgbouncer]
listen_addr =
unix_socket_dir = {folder}
auth_type = any
max_client_conn = 100
pool_mode = {mode}
{more}
"""
_PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin") or ""

missing = "" if _PROGRAM else "no PgBouncer is installed"
"""Reason why there is none, or an empty text."""


@contextlib.contextmanager
def pgbouncer(server: PostgresServer, mode: str, *more: str) -> Iterator[str]:
    """Run it, and yield the folder of its socket. `more` are lines of its configuration."""
    user, group = ordinary_user()
    with scratch() as folder:
        config = folder / "pgbouncer.ini"
        values = {"server": server.sockets, "folder": folder, "mode": mode}
        config.write_text(_CONFIG.format(more="\n".join(more), **values))
        if user is not None and group is not None:
            os.chown(folder, user, group)
            os.chown(config, user, group)
        process = subprocess.Popen([_PROGRAM, "-q", str(config)], user=user, group=group)
        ends = time.monotonic() + _PATIENCE
        try:
            while not (folder / ".s.PGSQL.6432").exists():
                if time.monotonic() > ends or process.poll() is not None:
                    raise RuntimeError("PgBouncer does not start")
                time.sleep(0.02)  # it has no other way to say that it is ready
            yield str(folder)
        finally:
            process.terminate()
            process.wait(_PATIENCE)


def through(folder: str, database: str, options: str = "") -> str:
    """Return the address of a database behind it."""
    return f"postgresql://nanobot@/{database}?host={folder}&port=6432{options}"
