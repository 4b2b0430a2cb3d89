"""The ReAct loop: ask the model, run the tools it calls, ask again, until it answers in text.

The runner knows nothing of sessions or channels. It returns exactly the new messages; what happens
on the way is reported to a `TurnLog`, which journals it and may bring in messages that arrived
meanwhile. Whatever a model or a tool does wrong becomes a tool result that the model can act on.

An API refuses a tool call without its result and a result without its call. Groups of both are
matched by position, not by id alone: some servers use the same ids again in every reply.

Hooks watch: each is called with every event as it happens, in order, so it has to be quick. One
that fails is logged and never breaks the turn.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import Protocol

from loguru import logger
from msgspec import Struct, field
from msgspec.structs import replace

from nanobot.agent.media import FOLDER, MediaStore
from nanobot.agent.session_queue import Screen
from nanobot.agent.truncation import PromptRoom
from nanobot.bus.events import (
    InboundMessage,
    Progress,
    PromptReading,
    TextDelta,
    ToolFinished,
    ToolOutput,
    ToolStarted,
    TurnEnded,
)
from nanobot.clock import Clock
from nanobot.errors import ContextTooLong, ProviderGarbage, StorageError
from nanobot.memory.taint import origins_of
from nanobot.messages import Message, ToolCall
from nanobot.providers.port import (
    CallOptions,
    Prompt,
    PromptMessage,
    Provider,
    Reply,
    Usage,
    assistant_message,
    tool_message,
    user_message,
)
from nanobot.text import one_line
from nanobot.tooling import ToolResult, TurnContext
from nanobot.tooling.registry import ToolRegistry

TurnEvent = InboundMessage | Progress | ToolFinished
"""An `InboundMessage` is stored and about to be routed."""


class AgentHook(Protocol):
    """`caller` is whom the turn is for: None for a message, and where a turn or a command ended."""

    def __call__(self, event: TurnEvent, caller: TurnContext | None = None) -> None: ...


class Hooks:
    """Shows on `screen` what happens in conversations with a person, and calls all `others`."""

    def __init__(self, screen: Screen | None = None, others: Sequence[AgentHook] = ()) -> None:
        self._screen, self._others = screen, others

    def __call__(self, event: TurnEvent, caller: TurnContext | None = None) -> None:
        """Tell all of them, and keep each one's failure to itself."""
        if self._screen is not None and not isinstance(event, InboundMessage | ToolFinished):
            turn = event if isinstance(event, TurnEnded) else caller
            if turn is not None and turn.initiator in {"person", "report"}:
                self._screen.show_progress(event)
        for hook in self._others:
            try:
                hook(event, caller)
            except Exception as error:  # noqa: BLE001 - the boundary: hooks never break a turn
                logger.opt(exception=error).warning("hook {} failed", type(hook).__name__)


class TurnMetrics:
    """A line in the log for each turn, and counts since the start: `turns` by how they ended, and
    the tokens of those that ended."""

    def __init__(self) -> None:
        self.turns: Counter[str] = Counter()
        self.prompt_tokens = 0
        self.completion_tokens = 0

    def __call__(self, event: TurnEvent, caller: TurnContext | None = None) -> None:
        if not isinstance(event, TurnEnded):
            return
        self.turns[event.outcome] += 1
        self.prompt_tokens += event.prompt_tokens
        self.completion_tokens += event.completion_tokens
        tokens = event.prompt_tokens + event.completion_tokens
        if event.outcome == "done" and not tokens and not event.milliseconds:
            return  # a command was answered
        used = (f"{event.milliseconds / 1000:.1f} s", f"{tokens:,} tokens", *event.tools)
        where = f"{event.channel}:{event.chat_id}"
        logger.info("{}: {} ({})", where, event.outcome, ", ".join(dict.fromkeys(used)))


_READING_PACE = 1.0
"""Seconds between two reports of the reading progress."""

AT_ONCE = 8
"""Calls that run side by side."""

STOPPED = "stopped by the person before it finished; the outcome is unknown"


def open_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """The calls of the last group that have no result yet, in order."""
    at = _last_group(messages)
    if at is None:
        return []
    answered = {message.tool_call_id for message in messages[at + 1 :]}
    return [call for call in messages[at].tool_calls if call.id not in answered]


def whole_groups(messages: Sequence[Message]) -> list[Message]:
    """The messages without a last group whose results are not complete."""
    return list(messages[: _last_group(messages)] if open_calls(messages) else messages)


def with_stopped_calls(messages: Sequence[Message], clock: Clock) -> list[Message]:
    """The messages, with a result for each call that has none."""
    stopped = [
        Message("tool", STOPPED, clock.now(), tool_call_id=call.id, name=call.name)
        for call in open_calls(messages)
    ]
    return [*messages, *stopped]


def _last_group(messages: Sequence[Message]) -> int | None:
    return next((at for at in reversed(range(len(messages))) if messages[at].tool_calls), None)


def groups_of(
    calls: Sequence[ToolCall], has_effects: Callable[[str], bool]
) -> list[list[ToolCall]]:
    """Runs of calls without effects, which run side by side; every other call by itself."""
    groups: list[list[ToolCall]] = []
    joins = False
    for call in calls:
        parallel = not has_effects(call.name)
        if parallel and joins and len(groups[-1]) < AT_ONCE:
            groups[-1].append(call)
        else:
            groups.append([call])
        joins = parallel
    return groups


def as_chosen(caller: TurnContext) -> TurnContext:
    """The caller of the calls of the last step, with what the model had read when it chose them:
    no result of that step counts, so the order in which its calls run does not matter."""
    read = tuple(caller.messages_read())
    at = _last_group(read)
    before = read if at is None else read[: at + 1]
    origins = cache(lambda: origins_of(before)) if before else caller.origins
    return replace(caller, messages_read=lambda: before, origins=origins)


class TurnLog:
    """Where a turn is written down as it happens. This one only keeps its messages: it is for turns
    that nobody has to resume, and in which nobody else speaks."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    async def record(self, message: Message) -> None:
        """The model called tools, or the runner itself told it something."""
        self.messages.append(message)

    async def starting(self, call: ToolCall) -> None:
        """A tool with effects is about to run: this must be on disk first."""

    async def finished(self, message: Message, *, effects: bool, seconds: float) -> None:
        """A tool's result, on disk before the next model call if the tool has effects."""
        self.messages.append(message)

    async def steered(self) -> Sequence[Message]:
        """Messages that arrived since, now part of this turn."""
        return ()

    async def corrections(self) -> Sequence[Message]:
        """What changed the question while its answer was written, now part of this turn: the
        answer is void then."""
        return ()


INTERRUPTED = (
    "interrupted: this call had started when nanobot was stopped or crashed; the outcome is"
    " unknown; check before repeating it"
)
EMPTY = "[nanobot: your last answer was empty. Answer the person now, in plain text.]"
"""The note after an empty answer; it is not stored."""
_MOST_UNREADABLE = 3
"""A small model that fails so often to write a call will fail again."""
OUT_OF = (
    "[nanobot: the limit of {} for one turn is reached. Answer now in plain text with what"
    " you have, and say what is left to do.]"
)


class Turn(Struct, frozen=True):
    """How a run ended: its final text; all messages before it are in the log. `finish` is the
    finish reason of `model`, which gave the answer; `steps` counts model calls."""

    text: str
    usage: Usage = field(default_factory=Usage)
    finish: str = "stop"
    steps: int = 1
    model: str = ""


class Resumed(Struct, frozen=True):
    """What a resumed turn had done already: its messages, and the calls that had started."""

    messages: tuple[Message, ...] = ()
    started: frozenset[str] = frozenset()


Render = Callable[[Message], PromptMessage]


def render_plain(message: Message) -> PromptMessage:
    """A message as it is sent, without header or images."""
    if message.role == "user":
        return user_message(message.content)
    if message.role == "tool":
        return tool_message(message.tool_call_id, message.content)
    return assistant_message(message.content, message.tool_calls, message.provider_data)


_NO_OPTIONS, _NOTHING_DONE, _NO_HOOKS = CallOptions(), Resumed(), Hooks()


class AgentRunner(Struct, frozen=True):
    """Runs turns with one provider and one set of tools. Stateless between runs.

    A turn takes at most `max_iterations` steps, and no further one once it has used `max_tokens`
    (0: any number). `media` keeps images that tools return; `room` makes a prompt fit that a turn's
    own tools have let grow too long.
    """

    provider: Provider
    tools: ToolRegistry
    clock: Clock
    max_iterations: int = 50
    max_tokens: int = 0
    media: MediaStore | None = None
    room: PromptRoom | None = None

    async def run(
        self,
        prompt: Prompt,
        caller: TurnContext,
        *,
        options: CallOptions = _NO_OPTIONS,
        resumed: Resumed = _NOTHING_DONE,
        log: TurnLog | None = None,
        hook: AgentHook = _NO_HOOKS,
        render: Render = render_plain,
        refused: ContextTooLong | None = None,
        schema: str = "",
    ) -> Turn:
        """Answer `prompt`, in the form of a JSON `schema` if one is given. Raises a `ProviderError`
        when the model could not; what had been done until then is in `log`. Prompts are made
        shorter than the one that was `refused` before."""
        run = _Run(self, prompt, caller, log or TurnLog(), hook, render, refused)
        if resumed.messages:
            await run.resume(resumed)
        limit = f"{self.max_iterations} steps"
        steps = sum(message.role == "assistant" for message in resumed.messages)
        for _ in range(steps, self.max_iterations):
            if steered := await run.log.steered():
                run.add(steered)
            reply = await self._ask(run, options)
            if reply.tool_calls:
                await run.act(reply)
            elif corrections := await run.log.corrections():
                run.add(corrections)
                run.show_text("", restart=True)  # the answer is to what was asked before
            else:
                return run.end(await self._formed(run, reply, schema, options))
            if run.unreadable == _MOST_UNREADABLE:
                limit = f"{_MOST_UNREADABLE} unreadable tool calls in a row"
                break
            if 0 < self.max_tokens <= run.usage.prompt + run.usage.completion:
                limit = f"{self.max_tokens:,} tokens"
                break
        notice = Message("user", OUT_OF.format(limit), self.clock.now(), origin="nanobot")
        await run.record(notice)
        reply = await self._ask(run, replace(options, tool_choice="none"))
        return run.end(await self._formed(run, reply, schema, options))

    async def _formed(self, run: _Run, reply: Reply, schema: str, options: CallOptions) -> Reply:
        """Put the final answer into its form, if it has one."""
        if not schema:
            return reply
        from nanobot.agent.forms import in_form  # few answers have a form

        async def ask(prompt: Prompt, options: CallOptions) -> Reply:
            return run.count(await self.provider.complete(prompt, options))

        return await in_form(ask, run.prompt, reply, schema, options)

    async def _ask(self, run: _Run, options: CallOptions) -> Reply:
        """One model call. After a reply with neither text nor calls the model is asked once more,
        with a note that it should answer, unless the cause stays the same."""
        if self.room is not None:
            run.prompt = await self.room.fit(run.prompt, options.model, run.refused)
        options = replace(options, on_reading=run.show_reading)
        reply = await self._complete(run, run.prompt, options)
        if not (reply.text.strip() or reply.tool_calls):
            from nanobot.providers.refusals import empty_reply_error  # which is rare

            empty = empty_reply_error(reply)
            if not isinstance(empty, ProviderGarbage):
                raise empty
            reply = await self._complete(run, run.prompt.plus([user_message(EMPTY)]), options)
            if not (reply.text.strip() or reply.tool_calls):
                raise empty_reply_error(reply)
        return reply

    async def _complete(self, run: _Run, prompt: Prompt, options: CallOptions) -> Reply:
        try:
            reply = await self.provider.complete(prompt, options, run.show_text)
        except ContextTooLong as error:
            if self.room is not None:
                self.room.learn(run.prompt, error, options)
            raise
        run.count(reply)
        return replace(reply, tool_calls=()) if options.tool_choice == "none" else reply


class _Run(Struct):
    """The state of one run: the prompt that grows, and what it has used."""

    runner: AgentRunner
    prompt: Prompt
    caller: TurnContext
    log: TurnLog
    hook: AgentHook
    render: Render
    refused: ContextTooLong | None = None
    usage: Usage = Usage()
    steps: int = 0
    unreadable: int = 0
    """Replies in a row of whose calls none could be read."""
    reading_due: float = -math.inf

    def add(self, messages: Sequence[Message]) -> None:
        """More messages, which the log has already, in the prompt."""
        self.prompt = self.prompt.plus([self.render(message) for message in messages])

    def count(self, reply: Reply) -> Reply:
        self.usage += reply.usage
        self.steps += 1
        return reply

    async def record(self, message: Message) -> None:
        self.add((message,))
        await self.log.record(message)

    def show_text(self, delta: str, restart: bool) -> None:
        thread = self.caller.thread_id
        self.hook(TextDelta(*self._place, delta, restart, thread_id=thread), self.caller)

    @property
    def _place(self) -> tuple[str, str, str]:
        return self.caller.channel, self.caller.chat_id, self.caller.turn_id

    def show_reading(self, read: int, total: int) -> None:
        """Report the reading progress: once a second, and its end if anything was shown."""
        caller, now = self.caller, self.runner.clock.monotonic()
        event = PromptReading(*self._place, read, total, thread_id=caller.thread_id)
        if event.is_done:
            is_due, self.reading_due = self.reading_due > -math.inf, -math.inf
        elif is_due := now >= self.reading_due:
            self.reading_due = now + _READING_PACE
        if is_due:
            self.hook(event, caller)

    def end(self, reply: Reply) -> Turn:
        stood_in = f" (instead of {reply.instead_of})" if reply.instead_of else ""
        return Turn(reply.text, self.usage, reply.finish, self.steps, f"{reply.model}{stood_in}")

    async def resume(self, resumed: Resumed) -> None:
        """Take up what an earlier process did, and give its open calls an outcome."""
        self.add(resumed.messages)
        calls, caller = open_calls(resumed.messages), as_chosen(self.caller)
        lost = {call.id for call in calls if call.id in resumed.started}
        for call in calls:
            if call.id in lost:
                await self._record(call, ToolResult(INTERRUPTED, trusted=True), 0.0)
        await self._call_all([call for call in calls if call.id not in lost], caller)

    async def act(self, reply: Reply) -> None:
        """Run the tools that a reply calls, in order; neighbours that may, side by side."""
        now = self.runner.clock.now()
        called = Message("assistant", reply.text, now, tool_calls=reply.tool_calls)
        await self.record(replace(called, provider_data=reply.provider_data))
        await self._call_all(reply.tool_calls, as_chosen(self.caller))
        unread = all(call.malformed for call in reply.tool_calls)
        self.unreadable = self.unreadable + 1 if unread else 0

    async def _call_all(self, calls: Sequence[ToolCall], caller: TurnContext) -> None:
        images: list[Message] = []
        for group in groups_of(calls, self.runner.tools.has_effects):
            results = await asyncio.gather(*(self._call(call, caller) for call in group))
            for call, (result, seconds) in zip(group, results, strict=True):
                await self._record(call, result, seconds)
                if result.images and (media := self.runner.media) is not None:
                    kept = [await asyncio.to_thread(media.put_base64, *i) for i in result.images]
                    text, origin = f"[image from {call.name}]", f"tool:{call.name}"
                    now = self.runner.clock.now()
                    images.append(Message("user", text, now, media=tuple(kept), origin=origin))
        for message in images:  # the API takes images only from the user's side
            await self.record(message)

    async def _call(self, call: ToolCall, caller: TurnContext) -> tuple[ToolResult, float]:
        """The result, and the seconds that the tool ran; none where it was not let to."""
        started = list[float]()

        def show(text: str) -> None:
            self.hook(ToolOutput(*self._place, text, thread_id=caller.thread_id), caller)

        async def starting() -> None:
            self.hook(ToolStarted(*self._place, call.hint, thread_id=caller.thread_id), caller)
            if self.runner.tools.has_effects(call.name):
                await self.log.starting(call)
            started.append(self.runner.clock.monotonic())

        result = await self.runner.tools.call(call, replace(caller, show_output=show), starting)
        result = await self._keep_files(result)
        if not started:
            return result, 0.0
        seconds = self.runner.clock.monotonic() - started[0]
        self.hook(ToolFinished(call.name, seconds), caller)
        return result, seconds

    async def _keep_files(self, result: ToolResult) -> ToolResult:
        """Keep the files of a result with those of messages, and tell the model where."""
        media = self.runner.media
        if not result.files or media is None:
            return result
        lines = [result.text] if result.text else []
        for file in result.files:
            name = one_line(file.name)
            try:
                kept = await asyncio.to_thread(media.put, file.content, file.mime, name)
                where = f"kept as {FOLDER}/{kept}"
            except StorageError as error:
                logger.warning("could not keep a file of a tool: {}", error)
                where = "which could not be kept"
            known = filter(None, (name, one_line(file.mime), f"{len(file.content):,} bytes"))
            lines.append(f"[file {', '.join(known)}, {where}]")
        return replace(result, text="\n".join(lines), files=())

    async def _record(self, call: ToolCall, result: ToolResult, seconds: float) -> None:
        text = f"Error: {result.text}" if result.is_error else result.text
        message = Message(
            "tool",
            text,
            self.runner.clock.now(),
            tool_call_id=call.id,
            name=call.name,
            origin="" if result.trusted else f"tool:{call.name[:64]}",
        )
        self.add((message,))
        effects = self.runner.tools.has_effects(call.name)
        await self.log.finished(message, effects=effects, seconds=seconds)
