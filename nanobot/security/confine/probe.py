"""A command that tries to escape and reports its successes.

It runs first in each new sandbox. Each success is a hole."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress

ALLOWED = frozenset(
    {"HOME", "LANG", "LOGNAME", "PATH", "PWD", "TERM", "TMPDIR", "USER", "LC_CTYPE", "SHLVL", "_"}
)
"""Variables in a command's default environment."""


def main(outside: str, workspace: str, process: str, port: int, abstract: str) -> None:
    """Try each escape and print the successful ones. Fail if an allowed action fails.

    `process` is a process id and its namespace number: `77:4026531836`."""
    tries = list_file_tries(outside, workspace) | {
        "read another process's environment": lambda: _read(f"/proc/{_reachable(process)}/environ"),
        "signal another process": lambda: os.kill(_reachable(process), 0),
        "connect to this machine": lambda: _connect(socket.AF_INET, ("127.0.0.1", port)),
        "connect to a socket": lambda: _connect(socket.AF_UNIX, f"{outside}/socket"),
        "connect to a socket in its folder": lambda: _connect(socket.AF_UNIX, "socket"),
        "connect to an abstract socket": lambda: _connect(socket.AF_UNIX, f"\0{abstract}"),
        "change the kernel": lambda: os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY),
        "see the environment": _environment,
    }
    crossed = []
    for what, attempt in tries.items():
        with suppress(OSError):
            attempt()
            crossed.append(what)
    _write(f"{workspace}/work/allowed")
    print(json.dumps({"crossed": crossed}))


def list_file_tries(outside: str, workspace: str) -> dict[str, Callable[[], object]]:
    return {
        "read a file": lambda: _read(f"{outside}/secret"),
        "list a folder": lambda: os.listdir(outside),
        "write a file": lambda: _write(f"{outside}/secret"),
        "make a file": lambda: _write(f"{outside}/new"),
        "change the mode of a file": lambda: os.chmod(f"{outside}/secret", 0o640),
        "link to a file": lambda: os.link(f"{outside}/secret", f"{workspace}/work/link"),
        "change a protected file": lambda: _write(f"{workspace}/protected"),
        "replace a protected file": lambda: _replace(f"{workspace}/protected"),
        "change a repository": lambda: _write(f"{workspace}/project/.git/config"),
        "move a repository": lambda: os.rename(f"{workspace}/project", f"{workspace}/work/p"),
    }


def _read(path: str) -> None:
    with open(path, "rb") as file:
        file.read(1)


def _write(path: str) -> None:
    with open(path, "wb") as file:
        file.write(b"changed\n")


def _replace(path: str) -> None:
    _write(f"{os.path.dirname(path)}/work/other")
    os.rename(f"{os.path.dirname(path)}/work/other", path)


def _reachable(process: str) -> int:
    """Return the process id, which means another process in another namespace."""
    number, namespace = process.split(":")
    if str(os.stat("/proc/self/ns/pid").st_ino) != namespace:
        raise ProcessLookupError(number)
    return int(number)


def _connect(family: int, address: tuple[str, int] | str) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.settimeout(2)
        connection.connect(address)


def _environment() -> None:
    if not set(os.environ) - ALLOWED:
        raise OSError("nothing there")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
