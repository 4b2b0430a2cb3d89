"""No command inside crosses a boundary. Crossings are counted, not matched as texts."""

from __future__ import annotations

from collections import Counter

from nanobot.security.sandbox import Sandbox
from tests.security.sandbox.ground import Ground


async def test_nothing_is_crossed(sandbox: Sandbox, ground: Ground) -> None:
    assert await ground.attack(sandbox) == []


async def test_the_attacker_knows_its_trade(bubblewrap: Sandbox, ground: Ground) -> None:
    crossed = await ground.attack(
        bubblewrap, read_only=(), hide_git=False, writable=(ground.outside,)
    )
    groups = Counter(what.split(":")[0] for what in crossed)
    assert groups["files"] >= 10
    assert groups["protected"] >= 10
    assert groups["repositories"] >= 2
    assert groups["people"] >= 3
    assert groups["sockets"] == 0  # `test_sockets` shows what they reach outside
    assert groups["seen outside"] >= 10


async def test_what_is_given_works(sandbox: Sandbox, ground: Ground) -> None:
    end = await ground.run(
        sandbox,
        "cat SOUL.md memory/MEMORY.md && echo new > work/new && mkdir work/d"
        " && mv work/new work/d && echo $GIVEN && pwd && echo t > $TMPDIR/t && rm $TMPDIR/t"
        " && cat work/d/new",
        environment={"GIVEN": "yes"},
    )
    assert end.code == 0, end.complaints
    assert end.output == f"secret\nsecret\nyes\n{ground.workspace}\nnew\n"
