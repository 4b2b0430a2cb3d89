"""No command inside crosses a boundary. Crossings are counted, not matched as texts."""

from __future__ import annotations

from collections import Counter

from nanobot.security.sandbox import Sandbox
from tests.security.sandbox.folders import SandboxFolders


async def test_nothing_is_crossed(sandbox: Sandbox, folders: SandboxFolders) -> None:
    assert await folders.attack(sandbox) == []


async def test_the_attacker_knows_its_trade(bubblewrap: Sandbox, folders: SandboxFolders) -> None:
    crossed = await folders.attack(
        bubblewrap, read_only=(), hide_git=False, writable=(folders.outside,)
    )
    groups = Counter(what.split(":")[0] for what in crossed)
    assert groups["files"] >= 10
    assert groups["protected"] >= 10
    assert groups["repositories"] >= 2
    assert groups["people"] >= 3
    assert groups["sockets"] == 0  # `test_sockets` shows what they reach outside
    assert groups["seen outside"] >= 10


async def test_what_is_given_works(sandbox: Sandbox, folders: SandboxFolders) -> None:
    end = await folders.run(
        sandbox,
        "cat SOUL.md memory/MEMORY.md && echo new > work/new && mkdir work/d"
        " && mv work/new work/d && echo $GIVEN && pwd && echo t > $TMPDIR/t && rm $TMPDIR/t"
        " && cat work/d/new",
        environment={"GIVEN": "yes"},
    )
    assert end.code == 0, end.complaints
    assert end.output == f"secret\nsecret\nyes\n{folders.workspace}\nnew\n"
