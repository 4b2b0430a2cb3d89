"""Shows in Telegram what happens while a turn runs: typing, the reply being written, what tools
print, notices.

Best effort, and never in the way: `show` only takes note, each chat has a task of its own that
makes the calls, and a send waits for none of them but a moment for one that would come after it.
Text is shown in private chats only, as a draft, which vanishes by itself when the reply arrives.
The reply itself is always sent by `outbound`.

All chats share what Telegram takes from one bot: the more of them show text, the slower each does.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from dataclasses import dataclass

from loguru import logger
from telegram import MessageEntity
from telegram.constants import ChatAction
from telegram.error import Forbidden

from nanobot.bus.events import Progress, TurnEnded
from nanobot.bus.split import split_text, utf16_length
from nanobot.channel.health import within
from nanobot.clock import Clock
from nanobot.text import valid_unicode
from nanobot_telegram.chats import Chats, number
from nanobot_telegram.client import NO_LINK_PREVIEW, Flooded, TelegramClient
from nanobot_telegram.markdown import ENTITY_LIMIT, TEXT_LIMIT, Rendered, render
from nanobot_telegram.preview_board import PostNotice, PreviewBoard, Step, Text, Typing

_GRACE = 1.0
"""Seconds that a send waits for a call under way that shows something of a turn which is over.
Usually it is answered within a tenth; one that hangs is cut."""

_MANY = 1_000
"""Boards of that many chats are kept before those without a use are looked for."""


@dataclass(frozen=True, slots=True)
class _Outcome:
    """How a step went; `wait` is what Telegram asks for, in seconds."""

    ok: bool
    wait: float = 0.0


@dataclass(slots=True)
class _ChatPreview:
    """A chat's board, and its worker. `asleep_until` is when the worker wakes up by itself (in the
    past: it does not sleep), `step` the one that `call` makes."""

    chat_id: str
    board: PreviewBoard
    wake: asyncio.Event
    has_worker: bool = False
    asleep_until: float = -math.inf
    step: Step | None = None
    call: asyncio.Task[_Outcome] | None = None


class Previews:
    """All chats. `enabled` False: typing and notices, but no text."""

    def __init__(
        self, client: TelegramClient, chats: Chats, clock: Clock, *, enabled: bool = True
    ) -> None:
        self._client, self._chats = client, chats
        self._clock, self._enabled = clock, enabled
        self._previewed: dict[str, _ChatPreview] = {}
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Own the tasks of the chats until cancelled; without it nothing is shown."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                try:
                    await asyncio.Event().wait()
                finally:
                    self._tasks = None  # from here on the group takes no tasks
        finally:
            self._previewed.clear()

    async def show(self, event: Progress) -> None:
        """Take note of an event; returns at once."""
        if self._tasks is None:
            return
        if self._chats.is_unreachable(event.chat_id) and not isinstance(event, TurnEnded):
            return
        preview = self._chat(event.chat_id)
        preview.board.note(event, self._clock.monotonic())
        self._wake(preview)

    async def settle(self, chat_id: str) -> None:
        """Before a send: nothing of a turn that is over may be shown after it."""
        preview = self._previewed.get(self._chats.canonical(chat_id))
        if preview is None or preview.call is None:
            return
        call, step = preview.call, preview.step
        if not isinstance(step, Typing | Text) or step.turn_id in preview.board.turns:
            return
        with suppress(TimeoutError):
            await within(self._clock, _GRACE, asyncio.wait((call,)))
        call.cancel()

    def hold(self, chat_id: str, seconds: float) -> None:
        """Telegram asked to leave a chat alone that long."""
        preview = self._previewed.get(self._chats.canonical(chat_id))
        if preview is not None:
            preview.board.hold(self._clock.monotonic(), seconds)

    def _chat(self, chat_id: str) -> _ChatPreview:
        chat_id = self._chats.canonical(chat_id)
        preview = self._previewed.get(chat_id)
        if preview is None:
            if len(self._previewed) >= _MANY:
                now = self._clock.monotonic()
                for id, idle in list(self._previewed.items()):
                    if not idle.has_worker and idle.board.is_idle(now):
                        del self._previewed[id]
            board = PreviewBoard(texts=self._enabled and not chat_id.startswith("-"))
            preview = self._previewed[chat_id] = _ChatPreview(chat_id, board, asyncio.Event())
        return preview

    def _wake(self, preview: _ChatPreview) -> None:
        """See that a worker does what is due. One that would wake up in time sleeps on: pieces of
        text come by the hundred."""
        due = preview.board.due()
        if preview.has_worker:
            if due < preview.asleep_until:
                preview.wake.set()
        elif due < math.inf and self._tasks is not None:
            preview.has_worker = True
            self._tasks.create_task(
                self._work(preview), name=f"telegram previews {preview.chat_id}"
            )

    async def _work(self, preview: _ChatPreview) -> None:
        try:
            while (due := preview.board.due()) < math.inf:
                now = self._clock.monotonic()
                step = preview.board.next(now)
                if step is not None:
                    await self._take(preview, step)
                    continue
                preview.wake.clear()
                preview.asleep_until = due
                with suppress(TimeoutError):
                    await within(self._clock, due - now, preview.wake.wait())
                preview.asleep_until = -math.inf
        finally:
            preview.has_worker = False

    async def _take(self, preview: _ChatPreview, step: Step) -> None:
        """Make the call as a task of its own, which `settle` may cut."""
        assert self._tasks is not None
        preview.step, preview.call = (
            step,
            self._tasks.create_task(self._outcome(preview.chat_id, step)),
        )
        await asyncio.wait((preview.call,))
        outcome = _Outcome(ok=False) if preview.call.cancelled() else preview.call.result()
        preview.step = preview.call = None
        now = self._clock.monotonic()
        if outcome.ok:
            crowd = sum(other.board.is_showing for other in self._previewed.values())
            preview.board.done(step, now, crowd=crowd)
        else:
            preview.board.failed(step, now, wait=outcome.wait)

    async def _outcome(self, chat_id: str, step: Step) -> _Outcome:
        """Take a step in a chat: one call of the Bot API. Raises nothing."""
        try:
            await self._call(chat_id, step)
            return _Outcome(ok=True)
        except Flooded as error:
            return _Outcome(ok=False, wait=error.seconds)
        except Forbidden as error:
            self._chats.set_unreachable(chat_id)
            logger.debug("telegram: {} in {}: {}", type(step).__name__, chat_id, error)
        except Exception as error:  # noqa: BLE001 - the boundary: progress is best effort
            logger.debug("telegram: {} in {}: {!r}", type(step).__name__, chat_id, error)
        return _Outcome(ok=False)

    async def _call(self, chat_id: str, step: Step) -> None:
        bot, chat = self._client.bot, self._chats.current(chat_id)
        thread = number(step.thread_id)
        match step:
            case Typing():
                await bot.send_chat_action(chat, ChatAction.TYPING, message_thread_id=thread)
            case Text():
                shown = _rendered(step.text, step.hint, step.output)
                if shown.text.strip():
                    await bot.send_message_draft(
                        chat,
                        step.draft_id,
                        shown.text,
                        message_thread_id=thread,
                        entities=shown.entities or None,
                    )
            case PostNotice():
                shown = _rendered(step.text)
                await bot.send_message(
                    chat,
                    shown.text,
                    entities=shown.entities or None,
                    disable_notification=True,
                    message_thread_id=thread,
                    link_preview_options=NO_LINK_PREVIEW,
                )


def _rendered(markdown: str, hint: str = "", output: str = "") -> Rendered:
    """The last part of `markdown` that fits in a message, and under it `hint` in italics and
    `output` as it is."""
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
    return Rendered(rendered.text + gap + below, tuple(entities))
