"""A workspace with its tools, all real."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from nanobot.clock import SystemClock
from nanobot.errors import WriteConflict
from nanobot.messages import ToolCall
from nanobot.security.paths import Root, Roots
from nanobot.tooling import ToolResult, TurnContext
from nanobot.tooling.registry import SpillFolder, ToolRegistry
from nanobot.tools.files import EditFile, UndoLog, WorkspaceWriter, WriteFile
from nanobot.tools.read_tools import FindFiles, Grep, ListDir, ReadFile
from nanobot.tools.shell.processes import Processes


@dataclass
class Documents:
    """A guarded writer that records its callers. It accepts everything in `memory/`."""

    root: Root
    seen: list[tuple[str, str, bytes | None, str]] = field(default_factory=list)

    def is_document(self, path: str, caller: TurnContext) -> bool:
        return path.startswith("memory/")

    async def replace(
        self, path: str, text: str, *, expected: bytes | None, caller: TurnContext
    ) -> int:
        self.seen.append((path, text, expected, caller.turn_id))
        if "conflict" in text:
            raise WriteConflict(path)
        self.root.place(path).write_bytes(text.encode(), expected=expected)
        return 1


class FileToolKit:
    """The environment of a file tool, in a folder."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.workspace = home / "workspace"
        self.workspace.mkdir()
        self.root = Root(self.workspace)
        self.undo = UndoLog(home / "undo", self.root)
        self.documents = Documents(self.root)
        self.turn = "turn-1"
        roots = Roots((self.root, Root(home / "spill", writable=False, name="spill folder")))
        self.writer = writer = WorkspaceWriter(
            lambda _: roots, self.undo, self.documents, Processes(SystemClock())
        )
        self.tools = ToolRegistry(spill=SpillFolder(home / "spill"))
        self.tools.register_all(
            [
                ReadFile(lambda _: roots),
                WriteFile(writer),
                EditFile(writer),
                ListDir(lambda _: roots),
                FindFiles(lambda _: roots),
                Grep(lambda _: roots),
            ]
        )

    async def call(self, name: str, **arguments: object) -> ToolResult:
        """Run a tool as a model does."""
        caller = TurnContext("cli", "direct", "cli:direct", self.turn)
        return await self.tools.call(ToolCall("1", name, json.dumps(arguments)), caller)

    async def says(self, name: str, **arguments: object) -> str:
        """Return the text of a successful call."""
        result = await self.call(name, **arguments)
        assert not result.is_error, result.text
        return result.text

    async def complains(self, name: str, **arguments: object) -> str:
        """Return the text of a failed call."""
        result = await self.call(name, **arguments)
        assert result.is_error, result.text
        return result.text

    def put(self, path: str, content: str | bytes) -> Path:
        """Write a file to the workspace from outside."""
        file = self.workspace / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file


@pytest.fixture
def kit(tmp_path: Path) -> FileToolKit:
    return FileToolKit(tmp_path)
