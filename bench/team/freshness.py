"""Two workers alternate in one chat, each with the shared folder mounted by NFS as on its own
machine: `python -m bench.team --freshness`.

The NFS client is `nfsclient.c`. Each message must be answered with the previous exchange in the
prompt, which the other worker has just stored, and the file must number every message once."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from bench.team.database import team_database
from bench.team.model import author
from nanobot.team import schema
from nanobot.team.connection import DatabaseAddress
from tests.team.pair import Pair, pair

FRESH = "rw,vers=4.2,hard,noac,proto=tcp"
"""The mount options required by docs/team.md, as the kernel shows them."""
CACHING = "rw,vers=4.2,hard,proto=tcp,lookupcache=pos"
"""Without `noac`: attributes are cached for 3 to 60 seconds."""

_PEOPLE = ("ann", "bob")
_PATIENCE = 600.0


def nfs_client(build: Path, mount: Path, options: str, seconds: float) -> Mapping[str, str]:
    """Return the environment of a process with the folder `mount` from a file server.

    Attributes are cached for `seconds`. The library is compiled into the folder `build`."""
    source = Path(__file__).parent.with_name("nfsclient.c")
    library = build / "nfsclient.so"
    command = ["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return {
        "LD_PRELOAD": str(library),
        "NFS_MOUNT": str(mount),
        "NFS_OPTIONS": options,
        "NFS_SECONDS": str(seconds),
    }


async def alternate(
    turns: int, seconds: float = 0.0, keep: str = ""
) -> tuple[dict[str, object], list[str]]:
    """Run the conversation; return the figures and the broken promises."""
    with ExitStack() as stack:
        folder = Path(keep or stack.enter_context(tempfile.TemporaryDirectory()))
        database = stack.enter_context(team_database())
        schema.prepare(DatabaseAddress(database.dsn))
        environ = nfs_client(folder, folder / "shared", FRESH, seconds)
        async with pair(
            folder, database.dsn, author, people=_PEOPLE, environ=environ,
            patience=_PATIENCE,
        ) as team:  # fmt: skip
            stale = await _talk(team, turns)
            numbers = [line["seq"] for line in await team.lines("api:bob:talk") if "seq" in line]
    twice = len(numbers) - len(set(numbers))
    figures: dict[str, object] = {
        "turns": turns,
        "turns that lacked the exchange before": stale,
        "messages with a number that another one has": twice,
    }
    faults = [f"{stale} turns of {turns} lacked the exchange before"] if stale else []
    faults += [f"{twice} messages have a number twice"] if twice else []
    faults += [f"{len(numbers)} messages in the file, not {2 * turns}"] * (
        len(numbers) != 2 * turns
    )
    return figures, faults


async def _talk(team: Pair, turns: int) -> int:
    """Return the number of turns without the previous exchange."""
    stale = 0
    for number in range(1, turns + 1):
        worker = team.both[number % 2]
        team.model.requests.clear()
        await team.ask(worker, f"m{number}: hello", person=_PEOPLE[-1])
        said = [str(one.get("content")) for one in team.model.requests[-1].messages]
        stale += number > 1 and f"answer to m{number - 1}" not in said
    return stale
