"""Shows in Telegram what happens while a turn runs: typing, the reading progress of a slow
model, the reply being written, what tools print, notices.

Best effort, and never in the way: `show_progress` only takes note, each chat has a task of its own
that makes the calls, and a send waits for none of them but a moment for one that would come after
it. Text is shown in private chats only, as a draft, which vanishes by itself when the reply
arrives. The reply itself is always sent by `outbound`.

All chats share what Telegram takes from one bot: the more of them show text, the slower each does.

`PreviewBoard` says what to show in one chat while turns run, and when: a pure state machine.

Events of turns go in; `next` gives the step that is due, `due` the time to ask again. Only the
newest text counts: what came while a call was under way, or too soon after one, is in the next
step. So the number of calls depends on time and never on how many pieces a reply arrives in.

Two calls that show text keep a distance, counted from the end of the first: however long the
network takes, they do not bunch up. Telegram counts what a bot does in all. Most of that is for
replies, so previews slow down where many chats show text at once. A call that fails ends that way
of showing for its turn; when Telegram asks to wait, the whole chat is left alone until then.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from operator import itemgetter

from loguru import logger
from msgspec import Struct, field
from telegram import MessageEntity
from telegram.constants import ChatAction
from telegram.error import Forbidden

from nanobot.bus.events import (
    Notice,
    Progress,
    PromptReading,
    TextDelta,
    ToolOutput,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from nanobot.bus.split import split_text, utf16_length
from nanobot.clock import Clock, with_timeout
from nanobot.text import valid_unicode
from nanobot_telegram.chats import Chats, number
from nanobot_telegram.client import NO_LINK_PREVIEW, Flooded, TelegramClient
from nanobot_telegram.markdown import ENTITY_LIMIT, TEXT_LIMIT, Rendered, render

_TYPING_PACE = 4.0
_DRAFT_PACE = 0.5
_READING_PAUSE = 1.0
"""A prompt that is read sooner needs no call to say so."""
_TEXTS_A_SECOND = 15
"""Of about 30 calls that Telegram takes from a bot, in all chats."""
_DRAFT_LIVES = 20.0
"""A draft vanishes after 30 seconds unless it is sent again."""
_NOTICE_PACE = 60.0
_NOTICES = 10
_SILENT = 3600.0
"""A turn of which nothing was heard for that long is not typing any more."""

_OUTPUT_KEPT = 4_000
_OUTPUT_LINES = 6
_OUTPUT_COLUMNS = 100


class Typing(Struct, frozen=True):
    """The bot is seen typing, for five seconds."""

    turn_id: str
    thread_id: str


class Text(Struct, frozen=True):
    """Show `text`, and below it `hint` and the end of a tool's `output`, as a draft. `version`
    tells this content from what comes later."""

    turn_id: str
    thread_id: str
    text: str
    hint: str
    version: int
    output: str = ""

    @property
    def draft_id(self) -> int:
        """The same for the whole turn, never 0."""
        return int.from_bytes(sha256(self.turn_id.encode()).digest()[:4], "big") % 0x7FFFFFFF + 1


class PostNotice(Struct, frozen=True):
    """Send a notice."""

    text: str
    thread_id: str


Step = Typing | Text | PostNotice
"""Each becomes one call of the Bot API."""


class _Turn(Struct):
    """A turn that runs. `is_aside`: the text so far came before a tool, and the reply itself starts
    over. `has_content`: there is something to show but typing. `version` counts changes, `shown` is
    the one last shown."""

    id: str
    thread_id: str
    typing_due: float
    heard_at: float
    shows_text: bool
    shows_typing: bool = True
    pieces: list[str] = field(default_factory=list)
    hint: str = ""
    output: str = ""
    reading: str = ""
    reading_due: float = 0.0
    has_text: bool = False
    has_content: bool = False
    is_aside: bool = False
    changed_at: float = 0.0
    shown_at: float = 0.0
    version: int = 0
    shown: int = 0

    def note(self, event: PromptReading | TextDelta | ToolStarted | ToolOutput, now: float) -> None:
        """More of what the turn does."""
        was_reading, self.reading = bool(self.reading), ""
        match event:
            case PromptReading():
                self.reading = "" if event.is_done else str(event)
                if not was_reading:
                    self.reading_due = now + _READING_PAUSE
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
        below = self.reading or self.hint or self.output.strip()
        self.has_content = self.has_text or bool(below)
        self.heard_at = now
        if self.version == self.shown:
            self.changed_at = now
        self.version += 1

    def step(self) -> Text:
        """What shows the present content."""
        text = "".join(self.pieces)
        self.pieces = [text]
        if self.reading:
            return Text(self.id, self.thread_id, text, self.reading, self.version)
        output = _last_lines(self.output)
        return Text(self.id, self.thread_id, text, self.hint, self.version, output)


class PreviewBoard:
    """One chat. Times are seconds of one monotonic clock; `texts`: replies are shown while they are
    written."""

    def __init__(self, *, texts: bool = True) -> None:
        self._texts = texts
        self.turns: dict[str, _Turn] = {}
        """The turns that run, by id."""
        self._notices: list[PostNotice] = []
        self._noticed: dict[PostNotice, float] = {}
        self._quiet_until = -math.inf
        self._text_due = -math.inf

    def note(self, event: Progress, now: float) -> None:
        """Something happened. What belongs to a turn that is not running is ignored."""
        match event:
            case TurnStarted():
                thread = event.thread_id
                self.turns[event.turn_id] = _Turn(event.turn_id, thread, now, now, self._texts)
            case TurnEnded():
                self.turns.pop(event.turn_id, None)
            case Notice():
                self._add_notice(PostNotice(event.text, event.thread_id), now)
            case _:
                if turn := self.turns.get(event.turn_id):
                    turn.note(event, now)

    def pause(self, now: float, seconds: float) -> None:
        """Show nothing for that long, and nothing more of the turns that run."""
        self._quiet_until = max(self._quiet_until, now + seconds)
        for turn in self.turns.values():
            turn.shows_text = turn.shows_typing = False

    def is_idle(self, now: float) -> bool:
        """Whether there is nothing here that needs to be remembered."""
        if self.turns or self._quiet_until > now or self.due() < math.inf:
            return False
        return all(at <= now - _NOTICE_PACE for at in self._noticed.values())

    def due(self) -> float:
        """When `next` has a step, unless something happens before; infinite: never."""
        first = min((due for due, _ in self._possible()), default=math.inf)
        return max(first, self._quiet_until)

    def next(self, now: float) -> Step | None:
        """The step to take now, if any. Report `done` or `failed` before asking again."""
        possible = [(due, step) for due, step in self._possible() if due <= now]
        if not possible or self._quiet_until > now:
            return None
        _, step = min(possible, key=itemgetter(0))
        return step.step() if isinstance(step, _Turn) else step

    def done(self, step: Step, now: float, *, crowd: int = 1) -> None:
        """A step was taken. `crowd`: so many chats show text, including this one."""
        match step:
            case Text():
                self._text_due = now + max(_DRAFT_PACE, crowd / _TEXTS_A_SECOND)
                if turn := self.turns.get(step.turn_id):
                    turn.shown, turn.shown_at = step.version, now
                    if turn.version != turn.shown:
                        turn.changed_at = now
            case Typing():
                if turn := self.turns.get(step.turn_id):
                    turn.typing_due = now + _TYPING_PACE
            case PostNotice():
                self._notices.remove(step)

    def failed(self, step: Step, now: float, *, wait: float = 0.0) -> None:
        """A step was refused or not answered; Telegram asked to wait that many seconds."""
        if wait > 0:
            self.pause(now, wait)
        match step:
            case Text():
                self._text_due = now + _DRAFT_PACE
                if turn := self.turns.get(step.turn_id):
                    turn.shows_text = False
                    turn.typing_due = now
            case Typing():
                if turn := self.turns.get(step.turn_id):
                    turn.shows_typing = False
            case PostNotice():
                self._notices.remove(step)

    def _add_notice(self, notice: PostNotice, now: float) -> None:
        """The same notice is posted once a minute."""
        self._noticed = {one: at for one, at in self._noticed.items() if at > now - _NOTICE_PACE}
        if notice not in self._noticed and len(self._notices) < _NOTICES:
            self._noticed[notice] = now
            self._notices.append(notice)

    def _possible(self) -> Iterator[tuple[float, Typing | PostNotice | _Turn]]:
        """Steps that may be taken, each with the time from which on; a turn stands for its text."""
        if self._notices:
            yield -math.inf, self._notices[0]
        for turn in self.turns.values():
            is_seen = turn.shows_text and turn.has_content and turn.shown > 0
            is_lost = turn.typing_due > turn.heard_at + _SILENT
            if turn.shows_typing and not is_seen and not is_lost:
                yield turn.typing_due, Typing(turn.id, turn.thread_id)
            if (due := self._due_for_text(turn)) < math.inf:
                yield due, turn

    def _due_for_text(self, turn: _Turn) -> float:
        if not turn.shows_text or not turn.has_content:
            return math.inf
        if turn.version == turn.shown:
            is_lost = turn.shown_at > turn.heard_at + _SILENT
            return math.inf if is_lost else turn.shown_at + _DRAFT_LIVES
        due = max(self._text_due, turn.changed_at)
        return max(due, turn.reading_due) if turn.reading else due


def _last_lines(output: str) -> str:
    """The last lines with content; the tool has made plain text of what was printed."""
    lines = [line.rstrip() for line in output.split("\n") if line.strip()][-_OUTPUT_LINES:]
    width = _OUTPUT_COLUMNS
    return "\n".join(one if len(one) <= width else f"{one[: width - 1]}…" for one in lines)


_GRACE = 1.0
"""Seconds that a send waits for a call under way that shows something of a turn which is over.
Usually it is answered within a tenth; one that hangs is cut."""

_MANY = 1_000
"""Boards of that many chats are kept before those without a use are looked for."""


class _Outcome(Struct, frozen=True):
    """How a step went; `wait` is what Telegram asks for, in seconds."""

    ok: bool
    wait: float = 0.0


class _ChatPreview(Struct):
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

    async def show_progress(self, event: Progress) -> None:
        """Take note of an event; returns at once."""
        if self._tasks is None:
            return
        if self._chats.is_unreachable(event.chat_id) and not isinstance(event, TurnEnded):
            return
        preview = self._chat(event.chat_id)
        preview.board.note(event, self._clock.monotonic())
        self._wake(preview)

    async def finish(self, chat_id: str) -> None:
        """Before a send: nothing of a turn that is over may be shown after it."""
        preview = self._previewed.get(self._chats.canonical(chat_id))
        if preview is None or preview.call is None:
            return
        call, step = preview.call, preview.step
        if not isinstance(step, Typing | Text) or step.turn_id in preview.board.turns:
            return
        with suppress(TimeoutError):
            await with_timeout(self._clock, _GRACE, asyncio.wait((call,)))
        call.cancel()

    def pause(self, chat_id: str, seconds: float) -> None:
        """Telegram asked to leave a chat alone that long."""
        preview = self._previewed.get(self._chats.canonical(chat_id))
        if preview is not None:
            preview.board.pause(self._clock.monotonic(), seconds)

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
                    await with_timeout(self._clock, due - now, preview.wake.wait())
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
            running = (other.board.turns.values() for other in self._previewed.values())
            crowd = sum(any(t.shows_text and t.has_content for t in turns) for turns in running)
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
        thread = number(step.thread_id) if step.thread_id else None
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
