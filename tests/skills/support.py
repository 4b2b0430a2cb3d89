"""A workspace with skills and their owner, all in real files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from nanobot.messages import ToolCall
from nanobot.security.paths import Root
from nanobot.skills.folder import Skill
from nanobot.skills.loader import SkillEnvironment, SkillsLoader
from nanobot.skills.prompt import ReadSkill
from nanobot.skills.service import SkillsService
from nanobot.testing import FakeClock
from nanobot.tooling import ToolResult, TurnContext
from nanobot.tooling.registry import ToolRegistry
from tests.doubles.state import MemoryState

OWNER = TurnContext("cli", "direct", "cli:direct", "turn-1")


class SkillsKit:
    """A home's skills. It has the programs `pdftotext` and `git`, and the variable `TOKEN`."""

    def __init__(self, home: Path) -> None:
        self.home, self.workspace = home, home / "workspace"
        self.workspace.mkdir()
        self.state = MemoryState()
        self.loader = self.open()
        self.service = SkillsService(self.loader, FakeClock())

    def open(self, **options: object) -> SkillsLoader:
        """Return a new process's loader."""
        there = {"pdftotext", "git"}
        here = SkillEnvironment(lambda name: name if name in there else None, {"TOKEN"}, "linux")
        given: dict[str, object] = {"here": here, **options}
        return SkillsLoader(Root(self.workspace), self.state, **given)  # type: ignore[arg-type]

    def put(self, name: str, files: Mapping[str, str | bytes] | str) -> Path:
        """Write a skill to the workspace. A text is its SKILL.md."""
        return write(self.workspace / "skills" / name, files)

    async def add_enabled(self, name: str, files: Mapping[str, str | bytes] | str) -> Skill:
        """Write a skill and enable it."""
        self.put(name, files)
        return await self.enable(name)

    async def enable(self, name: str, *, everyone: bool = False) -> Skill:
        """Enable a skill as the owner does after a review."""
        shown = {"digest": self.skill(name).digest, "everyone": everyone}
        await self.ask("skills.enable", name=name, **shown)
        return self.skill(name)

    async def ask(self, operation: str, **arguments: object) -> dict[str, Any]:
        """Call an operation."""
        answer = await self.service.table()[operation](arguments)
        assert isinstance(answer, dict)
        return answer

    def skill(self, name: str) -> Skill:
        """Return the skill of this name, which must exist."""
        skill = self.loader.find(name)
        assert skill is not None
        return skill

    def in_use(self, scope: str = "owner") -> set[str]:
        """Return the names for a model, without built-in ones."""
        return {one.name for one in self.loader.in_use(scope) if one.source == "workspace"}

    async def read(self, scope: str = "owner", **arguments: object) -> ToolResult:
        """Call `read_skill` as a model does."""
        tools = ToolRegistry()
        tools.register(ReadSkill(self.loader))
        call = ToolCall("1", "read_skill", json.dumps(arguments))
        return await tools.call(call, replace(OWNER, scope=scope))


def write(folder: Path, files: Mapping[str, str | bytes] | str) -> Path:
    """Create a folder with these files."""
    for path, content in ({"SKILL.md": files} if isinstance(files, str) else files).items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def skill_md(name: str = "tea", body: str = "Boil water.", **fields: str) -> str:
    """Return a SKILL.md."""
    given = {
        "name": name,
        "description": "How tea is made. Use when somebody is thirsty.",
        **fields,
    }
    front = "\n".join(f"{key}: {value}" for key, value in given.items())
    return f"---\n{front}\n---\n\n{body}\n"
