"""What a standing approval of an MCP tool is bound to besides the tool: the server's program.

The digest changes with the program file and with each file that an argument names. Whatever the
agent can write can't be bound like that, since a module next to a script decides as much as the
script. So a server that has anything in such a folder has no digest.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from nanobot.tools.mcp.values import McpServer

MOST_BYTES = 256_000_000
"""Of a program and its files together."""

_CHUNK = 1 << 20


class _Unbound(Exception):
    """The program can't be pinned down."""


def program_digest(server: McpServer, home: Path, agents: Sequence[Path]) -> str:
    """Return a digest of the server's program, or "" if it can't be pinned down. `home` is the
    folder that it runs in, `agents` are the folders that the agent can write in. Blocks."""
    if server.url:
        return server.identity
    try:
        state = [server.identity, *_files(server, home, [os.path.realpath(one) for one in agents])]
    except (_Unbound, OSError, ValueError):
        return ""
    return hashlib.sha256(json.dumps(state).encode("utf-8", "backslashreplace")).hexdigest()


def _files(server: McpServer, home: Path, agents: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each file that decides what runs, with a digest of its content."""
    program = server.program(home)
    if not program:
        raise _Unbound
    given = _named(home, server.args)
    searched = _named(home, (one for value in server.env.values() for one in value.split(":")))
    used = [program, *given, *searched, *map(str, server.paths)]
    if any(_is_below(os.path.realpath(one), agents) for one in used):
        raise _Unbound
    left = MOST_BYTES
    for one in map(Path, (program, *given)):
        if one.is_file():
            left -= one.stat().st_size
            if left < 0:
                raise _Unbound
            yield os.path.realpath(one), _digest(one)


def _named(home: Path, words: Iterable[str]) -> list[str]:
    """The paths of those words that name something that exists, also after a `=`."""
    parts = (part for word in words for part in (word, word.partition("=")[2]) if part)
    paths = (str(home / part) for part in parts if "\0" not in part)
    return [path for path in paths if os.path.lexists(path)]


def _is_below(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while piece := file.read(_CHUNK):
            digest.update(piece)
    return digest.hexdigest()
