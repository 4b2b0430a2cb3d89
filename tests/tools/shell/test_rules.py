"""No command that could reach a rule file runs while nanobot replaces it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot.memory.documents import LONG_TERM
from nanobot.memory.gitstore import GitStore
from nanobot.memory.store import MemoryStore
from nanobot.memory.version import Change
from nanobot.security.paths import Root
from nanobot.testing import FakeClock
from tests.tools.shell.conftest import ProcessWatch

if TYPE_CHECKING:
    from tests.tools.shell.conftest import NewDesk


async def test_only_a_rule_file_that_changes_ends_commands(
    new_desk: NewDesk, tmp_path: Path
) -> None:
    kit = new_desk(FakeClock())
    life = ProcessWatch(kit.workspace)
    quiet = partial(kit.processes.quiesce, "owner")
    versions = GitStore(tmp_path / "state", Root(kit.workspace), kit.clock)
    store = MemoryStore(versions, quiesce=quiet)
    await store.replace("USER.md", "one\n", expected="", change=Change("you"))
    name = await kit.in_background(f"{life.holding} sleep 900")
    await store.replace("USER.md", "one\n", expected="one\n", change=Change("you"))
    await store.replace(LONG_TERM, "fact\n", expected="", change=Change("you"))
    assert "still running" in await kit.says("exec_read", id=name)
    await store.replace("USER.md", "two\n", expected="one\n", change=Change("you"))
    await life.over()
    assert "changed a rule file" in await kit.says("exec_read", id=name)
