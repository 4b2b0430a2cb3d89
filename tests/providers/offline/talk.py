"""A tiny agent for these tests: real files, a few tools, and the ReAct loop."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from nanobot.messages import ToolCall
from nanobot.providers.offline.model import OfflineModel
from nanobot.providers.port import (
    CallOptions,
    Prompt,
    PromptMessage,
    Reply,
    Toolset,
    ToolSpec,
    assistant_message,
    system_message,
    tool_message,
    user_message,
)

TEMPLATE = """# Long-term memory

## User Information

(who this is)

## Preferences

(what they are fond of)

## Project Context

(what goes on)

## Important Notes

(anything else)

---

*A footer line.*
"""

ALL_TOOLS = ("read_file", "update_memory", "note", "message", "search_memory", "cron")


class ToolFailure(Exception):
    """Failure of a tool, as the model sees it."""


class Talk:
    """A conversation with the offline model in a real folder."""

    def __init__(
        self,
        folder: Path,
        *,
        memory: str | None = TEMPLATE,
        tools: Iterable[str] = ALL_TOOLS,
        header: str = "[today, Sat 2026-11-21 14:03 +01:00, cli:direct]\n",
    ) -> None:
        self.folder, self.header = folder, header
        (folder / "memory").mkdir(exist_ok=True)
        if memory is not None:
            self.memory_file.write_text(memory)
        self.tools = Toolset.of(ToolSpec(name, "", {"type": "object"}) for name in tools)
        self.messages: list[PromptMessage] = [system_message(self.system_prompt())]
        self.calls: list[tuple[str, dict[str, object]]] = []
        self.broken: dict[str, str] = {}
        self.search_result = ""
        self.results: dict[str, str] = {}
        """Results of tools that do not exist here."""
        self.model = OfflineModel()

    @property
    def memory_file(self) -> Path:
        return self.folder / "memory" / "MEMORY.md"

    @property
    def memory(self) -> str:
        return self.memory_file.read_text()

    @property
    def facts(self) -> list[str]:
        return [line[2:] for line in self.memory.splitlines() if line.startswith("- ")]

    def system_prompt(self) -> str:
        parts = ["# nanobot\n\nYou are nanobot.", "## AGENTS.md\n\nBe kind."]
        if self.memory_file.exists() and "\n- " in self.memory_file.read_text():
            parts.append(f"# Memory\n\n## Long-term Memory\n\n{self.memory_file.read_text()}")
        return "\n\n---\n\n".join(parts)

    def new_conversation(self) -> None:
        """Start a new conversation, as /new does. Files are kept."""
        self.messages = [system_message(self.system_prompt())]

    async def say(self, *texts: str, while_working: str = "") -> str:
        """Send messages and run tools until the model answers in text."""
        self.messages += [user_message(self.header + text) for text in texts]
        for _ in range(50):
            reply = await self.ask()
            self.messages.append(assistant_message(reply.text, reply.tool_calls))
            if not reply.tool_calls:
                return reply.text
            for call in reply.tool_calls:
                self.messages.append(tool_message(call.id, self.run(call)))
            if while_working:
                self.messages.append(user_message(self.header + while_working))
                while_working = ""
        raise AssertionError("the model never answered")

    async def ask(self, options: CallOptions | None = None) -> Reply:
        return await self.model.complete(
            Prompt(tuple(self.messages), self.tools), options or CallOptions()
        )

    def run(self, call: ToolCall) -> str:
        """Return the tool's result. An error is plain text too, as in the agent."""
        arguments = json.loads(call.arguments)
        assert call.name in {spec.name for spec in self.tools.specs}, "a tool that is not on offer"
        self.calls.append((call.name, arguments))
        if call.name in self.broken:
            return self.broken[call.name]
        if call.name in self.results:
            return self.results[call.name]
        try:
            return str(getattr(self, f"_{call.name}")(**arguments))
        except ToolFailure as failure:
            return str(failure)

    def _read_file(self, path: str) -> str:
        if not (self.folder / path).is_file():
            raise ToolFailure(f"Error: there is no {path}\nlist_dir shows what is there.")
        return (self.folder / path).read_text()

    def _update_memory(
        self,
        add: Iterable[str] = (),
        section: str = "",
        remove: Iterable[str] = (),
        replace: Iterable[dict[str, str]] = (),
    ) -> str:
        lines = self.memory.splitlines()
        for line in remove:
            lines.remove(line)
        for wish in replace:
            lines[lines.index(wish["old"])] = f"- {wish['new']}"
        for fact in add:
            if section not in lines:
                lines += ["", section, ""]
            lines.insert(lines.index(section) + 1, f"- {fact}")
        self.memory_file.write_text("\n".join(lines) + "\n")
        return "MEMORY.md: changed."

    def _note(self, text: str) -> str:
        with (self.folder / "memory" / "2026-11-21.md").open("a") as file:
            file.write(f"- 14:03 {text}\n")
        return "noted in memory/2026-11-21.md"

    def _message(self, media: list[str]) -> str:
        if missing := [path for path in media if not (self.folder / path).is_file()]:
            return f"Error: there is no {missing[0]}"
        return f"Sent to this chat: 1 file ({media[0]})."

    def _search_memory(self, query: str) -> str:
        return self.search_result
