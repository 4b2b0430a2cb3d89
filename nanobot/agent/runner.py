"""The ReAct loop: ask the model, run the tools it calls, and ask again until it answers in text.

The runner knows nothing of sessions or channels. It reports each new message to a `TurnLog`, which
journals it and may add messages that have arrived since. Any mistake of a model or a tool becomes a
tool result that the model can act on.

An API rejects a tool call without its result, and a result without its call. Calls and results are
matched by position as well as ID, because some servers reuse IDs in every reply."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import cache

from loguru import logger
from msgspec import Struct, field
from msgspec.structs import replace

from nanobot.agent.hooks import AgentHook, Hooks, WaitReports
from nanobot.agent.media import MediaStore
from nanobot.agent.truncation import PromptRoom
from nanobot.bus.events import (
    NANOBOT,
    TextDelta,
    ToolFinished,
    ToolOutput,
    ToolStarted,
    TurnJoined,
)
from nanobot.clock import Clock
from nanobot.errors import ContextTooLong, ProviderGarbage, StorageError
from nanobot.memory.taint import origins_of
from nanobot.messages import MEDIA, Attachment, Message, ToolCall
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

AT_ONCE = 8
"""Most calls that run in parallel."""

STOPPED = "stopped by the person before it finished; the outcome is unknown"


def open_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """Return the calls of the last group that have no result yet, in order."""
    at = _last_group(messages)
    if at is None:
        return []
    answered = {message.tool_call_id for message in messages[at + 1 :]}
    return [call for call in messages[at].tool_calls if call.id not in answered]


def whole_groups(messages: Sequence[Message]) -> list[Message]:
    """Return the messages without a last group whose results are incomplete."""
    return list(messages[: _last_group(messages)] if open_calls(messages) else messages)


def with_stopped_calls(messages: Sequence[Message], clock: Clock) -> list[Message]:
    """Return the messages, with a result added for each open call."""
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
    """Group neighbouring calls without effects, which run in parallel. Every other call is its own
    group."""
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
    """Return `caller` with the messages that the model had read when it chose the calls of the last
    step. No result of that step counts, so the order of its calls does not matter."""
    read = tuple(caller.messages_read())
    at = _last_group(read)
    before = read if at is None else read[: at + 1]
    origins = cache(lambda: origins_of(before)) if before else caller.origins
    return replace(caller, messages_read=lambda: before, origins=origins)


class TurnLog:
    """Log of a turn. This base class only keeps its messages, for turns that are never resumed and
    that no other message can join."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    @property
    def event_ids(self) -> tuple[str, ...]:
        """IDs of the events that it answers and whose senders expect an answer."""
        return ()

    def write(self, delta: str, *, restart: bool) -> None:
        """Collect more text of the current answer, which a stop keeps."""

    async def record(self, message: Message) -> None:
        """Record tool calls of the model, or a note of the runner."""
        self.messages.append(message)

    async def record_start(self, call: ToolCall) -> None:
        """Store durably that a tool with effects is about to run."""

    async def record_result(self, message: Message, *, effects: bool, seconds: float) -> None:
        """Record a tool's result. If the tool has effects, it is on disk before the next model
        call."""
        self.messages.append(message)

    async def take_new_messages(self) -> Sequence[Message]:
        """Return messages that have arrived since. They are now part of this turn."""
        return ()

    async def take_corrections(self) -> Sequence[Message]:
        """Return messages that changed the question while its answer was written, which voids the
        answer. They are now part of this turn."""
        return ()


INTERRUPTED = (
    "interrupted: this call had started when nanobot was stopped or crashed; the outcome is"
    " unknown; check before repeating it"
)
EMPTY = "[nanobot: your last answer was empty. Answer the person now, in plain text.]"
"""Note after an empty answer. It is not stored."""
_MOST_UNREADABLE = 3
"""A small model that writes this many unreadable calls in a row will fail again."""
OUT_OF = (
    "[nanobot: the limit of {} for one turn is reached. Answer now in plain text with what"
    " you have, and say what is left to do.]"
)


class Turn(Struct, frozen=True):
    """The result of a run: its final text, the finish reason of `model`, which gave the answer, and
    the number of model calls. All messages before the answer are in the log. `context` are the
    tokens of the last call, with the answer."""

    text: str
    usage: Usage = field(default_factory=Usage)
    finish: str = "stop"
    steps: int = 1
    model: str = ""
    context: int = 0


class EarlierWork(Struct, frozen=True):
    """The messages of a resumed turn, and the calls that had started."""

    messages: tuple[Message, ...] = ()
    started: frozenset[str] = frozenset()


Render = Callable[[Message], PromptMessage]


def render_plain(message: Message) -> PromptMessage:
    """Return a message for the prompt, without header or images."""
    if message.role == "user":
        return user_message("\n".join(filter(None, (message.notice, message.text))))
    if message.role == "tool":
        return tool_message(message.tool_call_id, message.content)
    return assistant_message(message.content, message.tool_calls, message.provider_data)


_NO_OPTIONS, _NOTHING_DONE, _NO_HOOKS = CallOptions(), EarlierWork(), Hooks()


class AgentRunner(Struct, frozen=True):
    """Runner of turns with one provider and one set of tools. Stateless between runs.

    A turn takes at most `max_iterations` steps, and none after it has used `max_tokens` (0: no
    limit). `media` stores images that tools return. `room` shortens a prompt that has grown too
    long during the turn."""

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
        resumed: EarlierWork = _NOTHING_DONE,
        log: TurnLog | None = None,
        hook: AgentHook = _NO_HOOKS,
        render: Render = render_plain,
        refused: ContextTooLong | None = None,
        schema: str = "",
    ) -> Turn:
        """Answer `prompt`, in the form of a JSON `schema` if one is given. If the model fails,
        raises a `ProviderError`, and `log` has all earlier messages. Prompts are made shorter than
        the `refused` one."""
        waits = WaitReports(hook, caller, self.clock)
        run = _Run(self, prompt, caller, log or TurnLog(), hook, waits, render, refused)
        if resumed.messages:
            await run.resume(resumed)
        limit = f"{self.max_iterations} steps"
        steps = sum(message.role == "assistant" for message in resumed.messages)
        for _ in range(steps, self.max_iterations):
            if steered := await run.log.take_new_messages():
                run.join(steered)
            reply = await self._ask(run, options)
            if reply.tool_calls:
                await run.act(reply)
            elif corrections := await run.log.take_corrections():
                run.join(corrections)
                run.show_text("", restart=True)  # the answer is outdated
            else:
                return run.end(await self._to_schema(run, reply, schema, options))
            if run.unreadable == _MOST_UNREADABLE:
                limit = f"{_MOST_UNREADABLE} unreadable tool calls in a row"
                break
            if 0 < self.max_tokens <= run.usage.prompt + run.usage.completion:
                limit = f"{self.max_tokens:,} tokens"
                break
        notice = OUT_OF.format(limit)
        await run.record(Message("user", "", self.clock.now(), origin=NANOBOT, notice=notice))
        reply = await self._ask(run, replace(options, tool_choice="none"))
        return run.end(await self._to_schema(run, reply, schema, options))

    async def _to_schema(self, run: _Run, reply: Reply, schema: str, options: CallOptions) -> Reply:
        """Put the final answer into the form of `schema`, if there is one."""
        if not schema:
            return reply
        from nanobot.agent.forms import in_form  # few answers have a form

        async def ask(prompt: Prompt, options: CallOptions) -> Reply:
            return run.count(await self.provider.complete(prompt, options))

        return await in_form(ask, run.prompt, reply, schema, options)

    async def _ask(self, run: _Run, options: CallOptions) -> Reply:
        """Call the model. After an empty reply, ask once more with a note, unless the cause would
        be the same."""
        if self.room is not None:
            run.prompt = await self.room.fit(run.prompt, options.model, run.refused)
        options = replace(
            options,
            on_reading=run.waits.show_reading,
            on_thinking=run.waits.show_thinking,
            on_outage=run.waits.show_outage,
        )
        reply = await self._complete(run, run.prompt, options)
        if not (reply.text.strip() or reply.tool_calls):
            from nanobot.providers.refusals import empty_reply_error  # rarely needed

            empty = empty_reply_error(reply)
            if not isinstance(empty, ProviderGarbage):
                raise empty
            reply = await self._complete(run, run.prompt.plus([user_message(EMPTY)]), options)
            if not (reply.text.strip() or reply.tool_calls):
                raise empty_reply_error(reply)
        return reply

    async def _complete(self, run: _Run, prompt: Prompt, options: CallOptions) -> Reply:
        run.waits.forget_thinking()
        try:
            reply = await self.provider.complete(prompt, options, run.show_text)
        except ContextTooLong as error:
            if self.room is not None:
                self.room.learn(run.prompt, error, options)
            raise
        run.count(reply)
        return replace(reply, tool_calls=()) if options.tool_choice == "none" else reply


class _Run(Struct):
    """State of one run: the growing prompt and the usage so far."""

    runner: AgentRunner
    prompt: Prompt
    caller: TurnContext
    log: TurnLog
    hook: AgentHook
    waits: WaitReports
    render: Render
    refused: ContextTooLong | None = None
    usage: Usage = Usage()
    steps: int = 0
    context: int = 0
    unreadable: int = 0
    """Number of successive replies with only unreadable calls."""

    def add(self, messages: Sequence[Message]) -> None:
        """Add messages to the prompt that the log already has."""
        self.prompt = self.prompt.plus([self.render(message) for message in messages])

    def join(self, messages: Sequence[Message]) -> None:
        """Add messages that have joined the turn."""
        self.add(messages)
        joined = TurnJoined(*self._place, self.log.event_ids, thread_id=self.caller.thread_id)
        self.hook(joined, self.caller)

    def count(self, reply: Reply) -> Reply:
        self.usage += reply.usage
        self.context = reply.usage.prompt + reply.usage.completion
        self.steps += 1
        return reply

    async def record(self, message: Message) -> None:
        self.add((message,))
        await self.log.record(message)

    def show_text(self, delta: str, restart: bool) -> None:
        self.log.write(delta, restart=restart)
        thread = self.caller.thread_id
        self.hook(TextDelta(*self._place, delta, restart, thread_id=thread), self.caller)

    @property
    def _place(self) -> tuple[str, str, str]:
        return self.caller.channel, self.caller.chat_id, self.caller.turn_id

    def end(self, reply: Reply) -> Turn:
        stood_in = f" (instead of {reply.instead_of})" if reply.instead_of else ""
        model = f"{reply.model}{stood_in}"
        return Turn(reply.text, self.usage, reply.finish, self.steps, model, self.context)

    async def resume(self, resumed: EarlierWork) -> None:
        """Add the messages of an earlier process, and finish its open calls."""
        self.add(resumed.messages)
        calls, caller = open_calls(resumed.messages), as_chosen(self.caller)
        lost = {call.id for call in calls if call.id in resumed.started}
        for call in calls:
            if call.id in lost:
                await self._record(call, ToolResult(INTERRUPTED, trusted=True), 0.0)
        await self._call_all([call for call in calls if call.id not in lost], caller)

    async def act(self, reply: Reply) -> None:
        """Run the tools that a reply calls, in order, neighbours in parallel if possible."""
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
                    shown = Message(
                        "user",
                        "",
                        self.runner.clock.now(),
                        media=tuple(Attachment(name, "image") for name in kept),
                        origin=f"tool:{call.name}",
                        notice=f"[image from {call.name}]",
                    )
                    images.append(shown)
        for message in images:  # the API takes images only from the user's side
            await self.record(message)

    async def _call(self, call: ToolCall, caller: TurnContext) -> tuple[ToolResult, float]:
        """Return the result, and the seconds that the tool ran, or 0 if it was not allowed to."""
        started = list[float]()

        def show(text: str) -> None:
            self.hook(ToolOutput(*self._place, text, thread_id=caller.thread_id), caller)

        async def starting() -> None:
            self.hook(ToolStarted(*self._place, call.hint, thread_id=caller.thread_id), caller)
            if self.runner.tools.has_effects(call.name):
                await self.log.record_start(call)
            started.append(self.runner.clock.monotonic())

        result = await self.runner.tools.call(call, replace(caller, show_output=show), starting)
        result = await self._keep_files(result)
        if not started:
            return result, 0.0
        seconds = self.runner.clock.monotonic() - started[0]
        size = len(result.text.encode("utf-8", "replace"))
        about = (*self._place, call.hint, seconds, size, result.is_error)
        self.hook(ToolFinished(*about, thread_id=caller.thread_id), caller)
        return result, seconds

    async def _keep_files(self, result: ToolResult) -> ToolResult:
        """Store the files of a result in the media folder, and add their names to its text."""
        media = self.runner.media
        if not result.files or media is None:
            return result
        lines = [result.text] if result.text else []
        for file in result.files:
            name = one_line(file.name)
            try:
                kept = await asyncio.to_thread(media.put, file.content, file.mime, name)
                where = f"kept as {MEDIA}/{kept}"
            except StorageError as error:
                logger.warning("could not keep a tool's file: {}", error)
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
        await self.log.record_result(message, effects=effects, seconds=seconds)
