"""`/run`: the owner's own shell commands, without a model call.

They pass the same gate as the model's (`ToolRegistry.call`): the sandbox, approvals, and the audit
log. The output joins the conversation as untrusted content, which the model reads with the next
message."""

from __future__ import annotations

import asyncio
import json

from nanobot.agent.session_queue import turn_ended
from nanobot.agent.turn_state import AgentParts
from nanobot.bus.events import ToolFinished, ToolOutput, ToolStarted, TurnStarted
from nanobot.commands import Answer, Command, CommandCall, CommandRegistry
from nanobot.memory.taint import origins_of
from nanobot.messages import Message, ToolCall
from nanobot.tasks import is_cancelled
from nanobot.text import clean, shorten
from nanobot.tooling import ToolResult, TurnContext
from nanobot.tooling.registry import ToolRegistry

TOOL = "exec"
RAN = "[nanobot: the person ran this command; its output is not their words]"
"""Notice of the message with the output."""

_HINT = 80
"""Characters."""


class RunCommand:
    """The slash command. `tools` has the shell."""

    def __init__(self, parts: AgentParts, tools: ToolRegistry) -> None:
        self._parts, self._tools = parts, tools
        self._running: dict[str, asyncio.Task[ToolResult]] = {}
        """The running command of each conversation, by its key."""

    async def stop(self, session_key: str) -> int:
        """Stop the command of a conversation and return the number of stopped commands."""
        if (running := self._running.get(session_key)) is None or running.done():
            return 0
        running.cancel()
        await asyncio.wait([running])
        return 1

    def register(self, registry: CommandRegistry) -> None:
        registry.register(
            Command(
                "run", "Run a shell command in the sandbox", self._run, "COMMAND", "owner",
                ordered=True,
            )
        )  # fmt: skip

    async def _run(self, call: CommandCall) -> Answer:
        command, session = call.arguments, call.session
        if not command:
            return Answer("Usage: /run COMMAND\nExample: /run ls")
        await call.begin_effect()
        caller = self._begin(call)
        begun = self._parts.clock.monotonic()
        tool_call = ToolCall(f"run{call.entry_id}", TOOL, json.dumps({"command": command}))
        running = self._parts.background.start(
            self._tools.call(tool_call, caller), name=f"run {session.key}"
        )
        self._running[session.key] = running
        try:
            result = await running
        except asyncio.CancelledError:
            running.cancel()
            await asyncio.wait([running])
            if is_cancelled():
                raise
            message = call.message
            ended = turn_ended(message, caller.turn_id, (message.answered_event,), "stopped")
            self._parts.hook(ended)
            return Answer("")  # `/stop` reports it
        finally:
            del self._running[session.key]
        self._note_end(call, caller, result, self._parts.clock.monotonic() - begun)
        if result.is_error and result.trusted:  # it did not run
            return Answer(result.text)
        now, output = self._parts.clock.now(), fence(clean(result.text))
        text = f"$ {command}\n{output}"
        session.add_message(
            Message("user", text, now, turn_id=caller.turn_id, origin=f"tool:{TOOL}", notice=RAN)
        )
        return Answer(output)

    def _begin(self, call: CommandCall) -> TurnContext:
        """Show that the command runs, and return its context."""
        message, session, hook = call.message, call.session, self._parts.hook
        turn_id = f"{self._parts.clock.now():%y%m%d}-{call.entry_id}"
        place, thread = (message.channel, message.chat_id, turn_id), message.thread_id
        caller = TurnContext(
            message.channel,
            message.chat_id,
            session.key,
            turn_id,
            message.sender_id,
            call.scope,
            thread,
            messages_read=lambda: session.messages,
            origins=lambda: origins_of(session.messages_with_origin),
            off_record=message.origin.off_record,
            conversation=f"{session.key} {session.epoch}",
            show_output=lambda text: hook(ToolOutput(*place, text, thread_id=thread), caller),
        )
        hook(TurnStarted(*place, (message.answered_event,), thread_id=thread), caller)
        hook(ToolStarted(*place, _hint(call), thread_id=thread), caller)
        return caller

    def _note_end(
        self, call: CommandCall, caller: TurnContext, result: ToolResult, seconds: float
    ) -> None:
        size = len(result.text.encode("utf-8", "replace"))
        place, failed = (caller.channel, caller.chat_id, caller.turn_id), result.is_error
        thread = caller.thread_id
        end = ToolFinished(*place, _hint(call), seconds, size, failed, thread_id=thread)
        self._parts.hook(end, caller)


def _hint(call: CommandCall) -> str:
    return shorten(f"{TOOL} {call.arguments}", _HINT)


def fence(output: str) -> str:
    """Return a program's clean output as a code block in Markdown, which no line of it ends."""
    longest = max((len(run) for run in output.split("\n") if set(run.strip()) == {"`"}), default=2)
    mark = "`" * max(3, longest + 1)
    return f"{mark}\n{output}\n{mark}"
