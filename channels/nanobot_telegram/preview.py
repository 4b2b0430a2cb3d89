"""Shows the progress of a turn in Telegram: typing, the wait for a model, the reply being written,
the output of tools, and notices.

Best effort, and never blocking: `show_progress` only records events, each turn has its own task for
the calls, and a send waits at most a moment for a call of a finished turn. Text is shown only in
private chats, as a draft that disappears when the reply arrives. `outbound` sends the reply itself.

Only the newest text is shown, so the number of calls depends on time and not on the number of
pieces of a reply. Calls that show text keep a distance from the end of the previous one. All chats
share the calls that Telegram accepts from one bot: the more chats show text, the slower each
updates. If a kind of progress fails, the turn stops showing it. When Telegram asks to wait, the
chat shows nothing until then, and its running turns show nothing more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from hashlib import sha256

from loguru import logger
from msgspec import Struct, field
from telegram import MessageEntity
from telegram.error import Forbidden

from nanobot.bus.events import (
    Notice,
    Progress,
    TextDelta,
    ToolFinished,
    ToolOutput,
    ToolStarted,
    TurnEnded,
    TurnJoined,
    TurnStarted,
    Waiting,
)
from nanobot.bus.split import split_text, utf16_length
from nanobot.clock import Clock, with_timeout
from nanobot.text import valid_unicode
from nanobot_telegram.chats import Chats, number
from nanobot_telegram.client import NO_LINK_PREVIEW, Flooded, TelegramClient
from nanobot_telegram.markdown import ENTITY_LIMIT, TEXT_LIMIT, FormattedText, render

_FIRST_PAUSE = 0.4  # seconds; a quicker answer needs no progress
_TYPING_PACE = 4.0
_DRAFT_PACE = 0.5
_WAITING_PAUSE = 1.0  # a shorter wait for the model needs no progress
_WAITING_PACE = 2.0  # of its seconds
_TEXTS_A_SECOND = 15  # out of about 30 calls that Telegram accepts from a bot in all chats
_DRAFT_LIVES = 20.0  # a draft disappears after 30 seconds unless it is sent again
_NOTICE_PACE = 60.0
_NOTICES = 100  # the number of remembered notices
_SILENT = 3600.0  # a turn without events for this long is dropped
_GRACE = 1.0
"""Seconds that a send waits for a call of a finished turn. Usually it takes a tenth of a second. A
hanging one is cancelled."""

_OUTPUT_KEPT = 4_000
_OUTPUT_LINES = 6
_OUTPUT_COLUMNS = 100


class _Turn(Struct, eq=False):
    """A running turn. `is_aside`: the text so far preceded a tool call, and the reply starts over.
    `has_content`: there is more to show than typing."""

    id: str
    chat_id: str
    thread_id: str
    shows_text: bool
    heard_at: float
    shows_typing: bool = True
    is_over: bool = False
    is_calling: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    pieces: list[str] = field(default_factory=list)
    hint: str = ""
    output: str = ""
    waiting: str = ""
    waiting_due: float = 0.0
    has_text: bool = False
    has_content: bool = False
    is_aside: bool = False

    @property
    def draft_id(self) -> int:
        """The draft's id, constant for the turn and never 0."""
        return int.from_bytes(sha256(self.id.encode()).digest()[:4], "big") % 0x7FFFFFFF + 1

    def note(self, event: Waiting | TextDelta | ToolStarted | ToolOutput, now: float) -> None:
        """Record progress."""
        was_waiting, self.waiting = bool(self.waiting), ""
        match event:
            case Waiting():
                self.waiting = str(event)
                if not was_waiting:
                    self.waiting_due = now + _WAITING_PAUSE
            case TextDelta():
                if event.restart or self.is_aside:
                    self.pieces, self.hint, self.output = [], "", ""
                    self.is_aside = self.has_text = False
                self.pieces.append(event.text)
                self.has_text = self.has_text or bool(event.text.strip())
            case ToolStarted():
                self.hint, self.output, self.is_aside = event.hint, "", True
            case ToolOutput():
                self.output = (self.output + event.text)[-_OUTPUT_KEPT:]
                self.is_aside = True
        below = self.waiting or self.hint or self.output.strip()
        self.has_content = self.has_text or bool(below)
        self.heard_at = now
        self.changed.set()

    def text_due(self) -> float:
        """Return the time at which the content may be shown."""
        if not (self.shows_text and self.has_content):
            return float("inf")
        return self.waiting_due if self.waiting else 0.0

    def render(self) -> FormattedText:
        """Render the current content."""
        text = "".join(self.pieces)
        self.pieces = [text]
        if self.waiting:
            return render_preview(text, self.waiting)
        # the tool already made the output plain text
        lines = [line.rstrip() for line in self.output.split("\n") if line.strip()]
        width = _OUTPUT_COLUMNS
        lines = [one if len(one) <= width else f"{one[: width - 1]}…" for one in lines]
        return render_preview(text, self.hint, "\n".join(lines[-_OUTPUT_LINES:]))


class Previews:
    """The previews of all chats. `enabled` False: typing and notices, but no text."""

    def __init__(
        self, client: TelegramClient, chats: Chats, clock: Clock, *, enabled: bool = True
    ) -> None:
        self._client, self._chats = client, chats
        self._clock, self._enabled = clock, enabled
        self._turns: dict[str, _Turn] = {}
        self._noticed: dict[tuple[str, Notice], float] = {}
        self._quiet_until: dict[str, float] = {}
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Run the tasks of the turns until cancelled. Nothing is shown without it."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                await asyncio.Event().wait()
            finally:
                self._tasks = None  # the group accepts no more tasks

    async def show_progress(self, event: Progress) -> None:
        """Record an event. Returns at once."""
        if self._tasks is None:
            return
        chat_id, now = self._chats.canonical(event.chat_id), self._clock.monotonic()
        if isinstance(event, TurnEnded):
            if turn := self._turns.get(event.turn_id):
                end_turn(turn)
        elif self._chats.is_unreachable(chat_id):
            return
        elif isinstance(event, Notice):
            recent = {one: at for one, at in self._noticed.items() if at > now - _NOTICE_PACE}
            if (chat_id, event) not in recent and len(recent) < _NOTICES:
                recent[chat_id, event] = now
                self._tasks.create_task(self._post(chat_id, event))
            self._noticed = recent
        elif isinstance(event, TurnStarted):
            shows_text = self._enabled and not chat_id.startswith("-")
            begun = _Turn(event.turn_id, chat_id, event.thread_id, shows_text, now)
            self._turns[begun.id] = begun
            begun.task = self._tasks.create_task(self._show(begun))
            begun.task.add_done_callback(lambda _: self._turns.pop(begun.id, None))
        elif (turn := self._turns.get(event.turn_id)) and not isinstance(
            event, TurnJoined | ToolFinished
        ):
            turn.note(event, now)

    async def finish(self, chat_id: str) -> None:
        """End the calls of finished turns before a send, so that nothing of them is shown after
        it."""
        calling = [turn for turn in self._in(chat_id) if turn.is_over and turn.is_calling]
        over = [turn.task for turn in calling if turn.task]
        if over:
            with suppress(TimeoutError):
                await with_timeout(self._clock, _GRACE, asyncio.wait(over))
            for task in over:
                task.cancel()

    def pause(self, chat_id: str, seconds: float) -> None:
        """Show nothing in a chat for this long, because Telegram asked to wait."""
        now, chat_id = self._clock.monotonic(), self._chats.canonical(chat_id)
        quiet = {chat: until for chat, until in self._quiet_until.items() if until > now}
        self._quiet_until = {**quiet, chat_id: max(now + seconds, quiet.get(chat_id, now))}
        for turn in self._in(chat_id):
            end_turn(turn)

    def _in(self, chat_id: str) -> list[_Turn]:
        chat_id = self._chats.canonical(chat_id)
        return [turn for turn in self._turns.values() if turn.chat_id == chat_id]

    async def _show(self, turn: _Turn) -> None:
        """Show a turn until it ends: its text if there is any, otherwise typing."""
        await self._clock.sleep(max(_FIRST_PAUSE, self._quiet_for(turn.chat_id)))
        now = typing_due = self._clock.monotonic()
        has_draft = False
        while not turn.is_over and now < turn.heard_at + _SILENT:
            turn.changed.clear()
            is_text_due = turn.text_due() <= now
            is_typing = turn.shows_typing and not (has_draft and turn.has_content)
            if is_text_due:
                has_draft = turn.shows_text = await self._attempt(turn, self._draft(turn))
                typing_due = self._clock.monotonic()
                turn.waiting_due = typing_due + _WAITING_PACE
                if has_draft:
                    await self._after_draft(turn)
            elif is_typing and typing_due <= now:
                turn.shows_typing = await self._attempt(turn, self._type(turn))
                typing_due = self._clock.monotonic() + _TYPING_PACE
            else:
                due = min(typing_due if is_typing else now + _SILENT, turn.text_due())
                with suppress(TimeoutError):
                    await with_timeout(self._clock, due - now, turn.changed.wait())
            now = self._clock.monotonic()

    async def _after_draft(self, turn: _Turn) -> None:
        """Wait until the next draft may be sent and is needed."""
        if turn.is_over:
            return
        showing = [one for one in self._turns.values() if one.shows_text and one.has_content]
        pace = max(_DRAFT_PACE, len(showing) / _TEXTS_A_SECOND)
        await self._clock.sleep(pace)
        with suppress(TimeoutError):
            await with_timeout(self._clock, _DRAFT_LIVES - pace, turn.changed.wait())

    async def _attempt(self, turn: _Turn, call: Awaitable[None]) -> bool:
        turn.is_calling = True
        try:
            return await self._is_done(turn.chat_id, call)
        finally:
            turn.is_calling = False

    async def _post(self, chat_id: str, notice: Notice) -> None:
        """Send a notice. Retries if Telegram asks to wait."""
        while True:
            await self._clock.sleep(self._quiet_for(chat_id))
            if await self._is_done(chat_id, self._send(chat_id, notice)):
                return
            if not self._quiet_for(chat_id):
                return

    def _quiet_for(self, chat_id: str) -> float:
        """Return the seconds for which a chat may show nothing."""
        return max(0.0, self._quiet_until.get(chat_id, 0.0) - self._clock.monotonic())

    async def _is_done(self, chat_id: str, call: Awaitable[None]) -> bool:
        """Make a call of the Bot API. Return True if it succeeded."""
        try:
            await call
        except Flooded as error:
            self.pause(chat_id, error.seconds)
        except Forbidden as error:
            self._chats.set_unreachable(chat_id)
            logger.debug("telegram: progress was not shown in {}: {}", chat_id, error)
        except Exception as error:  # noqa: BLE001 - the boundary: progress is best effort
            logger.debug("telegram: progress was not shown in {}: {!r}", chat_id, error)
        else:
            return True
        return False

    async def _type(self, turn: _Turn) -> None:
        fields = {"action": "typing", **self._place(turn.chat_id, turn.thread_id)}
        await self._client.call("sendChatAction", fields)

    async def _draft(self, turn: _Turn) -> None:
        shown = turn.render()
        if shown.text.strip():
            fields = {
                "draft_id": turn.draft_id,
                "text": shown.text,
                "entities": shown.entities or None,
                **self._place(turn.chat_id, turn.thread_id),
            }
            await self._client.call("sendMessageDraft", fields)

    async def _send(self, chat_id: str, notice: Notice) -> None:
        shown = render_preview(notice.text)
        fields = {
            "text": shown.text,
            "entities": shown.entities or None,
            "disable_notification": True,
            "link_preview_options": NO_LINK_PREVIEW,
            **self._place(chat_id, notice.thread_id),
        }
        await self._client.send("sendMessage", fields)

    def _place(self, chat_id: str, thread_id: str) -> dict[str, object]:
        return {"chat_id": self._chats.current(chat_id), "message_thread_id": number(thread_id)}


def end_turn(turn: _Turn) -> None:
    """Stop showing a turn. A call in progress is left to finish."""
    turn.is_over = True
    if turn.task is not None and not turn.is_calling:
        turn.task.cancel()


def render_preview(markdown: str, hint: str = "", output: str = "") -> FormattedText:
    """Render the last part of `markdown` that fits in a message, followed by `hint` in italics and
    the literal `output`."""
    markdown = valid_unicode(markdown)
    notes = [
        (kind, valid_unicode(note))
        for kind, note in ((MessageEntity.ITALIC, hint), (MessageEntity.PRE, output))
        if note
    ]
    below = "\n".join(note for _, note in notes)
    gap = "\n\n" if markdown.strip() and below else ""
    room = limit = TEXT_LIMIT - utf16_length(gap + below)
    rendered = render(split_text(markdown, limit)[-1])
    while utf16_length(rendered.text) > room and limit > 1:
        limit //= 2
        rendered = render(split_text(markdown, limit)[-1])
    entities = list(rendered.entities[: ENTITY_LIMIT - len(notes)])
    offset = utf16_length(rendered.text + gap)
    for kind, note in notes:
        entities.append(MessageEntity(kind, offset, utf16_length(note)))
        offset += utf16_length(note + "\n")
    return FormattedText(rendered.text + gap + below, tuple(entities))
