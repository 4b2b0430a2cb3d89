"""Inbound updates: from long polling or the webhook into the core's inbox.

No update is acknowledged to Telegram before it is in the inbox. A poll with an offset acknowledges
all earlier updates, and Telegram forgets them. So a poll uses the offset that was stored in one
transaction with the messages it covers. After an interruption the same updates come again, and the
inbox recognizes those it has.

Each update is parsed separately: an invalid update is quarantined, and the others are handled. If
only parts of a message are malformed, its words are ingested with a note. Otherwise a private
sender is informed that the message could not be read. A batch is published at once, with the cursor
that covers it. Errors of the core propagate: nothing is confirmed, and Telegram delivers the batch
again.

Failing polls are at least a second apart. If no poll was answered for 90 s, the connections are
rebuilt. Time is the host's clock."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from loguru import logger
from msgspec import Struct
from msgspec.structs import replace
from telegram import Update
from telegram.error import Conflict, InvalidToken, NetworkError, TelegramError

from nanobot.bus.events import InboundMessage
from nanobot.channel import ChannelHost
from nanobot.channel.documents import Quarantine
from nanobot.channel.health import HealthReporter
from nanobot.clock import Backoff, with_timeout
from nanobot.errors import SendRefused, StorageError
from nanobot.io import FENCE
from nanobot.parsing import holds_more
from nanobot_telegram.chats import Chats
from nanobot_telegram.client import MaybeSent, TelegramClient, wait_after
from nanobot_telegram.content import Me, note
from nanobot_telegram.reactions import Reactions
from nanobot_telegram.updates import (
    AlbumTracker,
    ParsedUpdate,
    Press,
    from_press,
    parse_update,
    unreadable,
)

_MOST_VALUES = 10_000
"""Objects and values in an update. A text has at most 100 entities of four values each. Parsing
this many takes 40 ms."""
_KINDS = ("message", "edited_message")
_WHO = (
    "message_id", "chat", "from", "sender_chat", "sender_business_bot", "guest_query_id",
    "business_connection_id", "message_thread_id", "is_topic_message", "ephemeral_message_id",
    "migrate_to_chat_id", "migrate_from_chat_id", "date", "forward_origin", "via_bot",
)  # fmt: skip
"""The fields that identify author and chat. A message without valid ones is not read."""
_ODD_PARTS = "nanobot could not read parts of the message and kept only its text"
_NOT_VALID = "This button is no longer valid."
_NOT_EPHEMERAL = (
    "I can't answer a message that only I can see. Send it as an ordinary message, or write to me"
    " in a private chat."
)


class UpdateIngest:
    """Ingestion of updates for the bot `me`. `tasks` runs follow-up tasks."""

    def __init__(
        self,
        client: TelegramClient,
        host: ChannelHost,
        chats: Chats,
        me: Me,
        tasks: asyncio.TaskGroup,
        reactions: Reactions,
    ) -> None:
        self._client, self._host, self._chats = client, host, chats
        self._me, self._tasks, self._reactions = me, tasks, reactions
        self._albums = AlbumTracker()
        self._quarantine = Quarantine("telegram", host)

    async def ingest(self, updates: Sequence[object], cursor: str | None = None) -> None:
        """Handle raw updates. Returns when all are durable with `cursor`.

        On `StorageError`, nothing is durable."""
        messages: list[InboundMessage] = []
        presses: list[tuple[Press, bool]] = []
        parsed: Sequence[ParsedUpdate | None] = [await self._parse(update) for update in updates]
        for update in self._albums.complete(parsed):
            if update is None or not self._admit(update):
                continue
            if update.ephemeral:
                self._tasks.create_task(self._decline(update.sender.id, update.chat.id))
            elif update.message is not None:
                messages.append(update.message)
            elif (press := update.press) is not None:
                value = await self._host.resolve_button(press.button_id, update.sender, update.chat)
                presses.append((press, value is not None))
                if value is not None:
                    messages.append(from_press(update, press, value, self._host.clock.now()))
        await FENCE.wait_aside()
        self._chats.flush()  # before Telegram forgets the updates with the moves
        stored = frozenset(await self._host.publish(messages, cursor))
        self._reactions.note_stored(one for one in messages if one.event_id in stored)
        for press, is_valid in presses:
            self._tasks.create_task(self._acknowledge(press, is_valid=is_valid))

    def quarantine(self, update: object, error: Exception) -> None:
        """Quarantine a malformed update."""
        self._quarantine.keep(update, f"malformed, {type(error).__name__}")

    async def _parse(self, update: object) -> ParsedUpdate | None:
        await asyncio.sleep(0)  # a large update takes a while, and there may be many
        now = self._host.clock.now()
        try:
            parsed = self._read(update, now)
            if parsed is not None and parsed.moved is not None:
                # At once: messages in the new group follow, and belong to the old chat.
                self._chats.note_move(*parsed.moved)
        except Exception as error:  # noqa: BLE001 - the boundary: one update must not stop the others
            self.quarantine(update, error)
            return self._words_of(update, now) or unreadable(update, self._chats.canonical, now)
        return parsed

    def _words_of(self, update: object, now: datetime) -> ParsedUpdate | None:
        """Return the words of a message with malformed parts, or None if they or their author are
        malformed as well."""
        whole = update if isinstance(update, dict) else {}
        for kind in _KINDS:
            if isinstance(message := whole.get(kind), dict):
                kept = {key: message[key] for key in (*_WHO, "text", "caption") if key in message}
                with suppress(Exception):  # the library may raise anything
                    parsed = self._read({**whole, kind: kept}, now)
                    if parsed and (said := parsed.message) and said.content:
                        notes = (*said.notes, note(_ODD_PARTS))
                        return replace(parsed, message=replace(said, notes=notes))
        return None

    def _read(self, update: object, now: datetime) -> ParsedUpdate | None:
        if not isinstance(update, dict):
            raise TypeError("an update must be an object")
        if holds_more(update, _MOST_VALUES):
            raise ValueError("an update with too many values")
        assert now.tzinfo is not None
        return parse_update(
            Update.de_json(update, None), self._me, self._chats.canonical, now.tzinfo
        )

    def _admit(self, update: ParsedUpdate) -> bool:
        """Return True if the update has content and its sender is admitted. Records the state of
        the chat."""
        chat = update.chat
        if update.gone is True:
            self._chats.set_unreachable(chat.id)
        elif update.gone is False:
            self._chats.set_reachable(chat.id)
        if update.press is None and update.message is None and not update.ephemeral:
            return False
        if self._host.admit(update.sender, chat, addressed=update.addressed) != "allowed":
            return False
        self._chats.set_reachable(chat.id)
        if chat.is_group:
            self._chats.admit_group(chat.id)
        return True

    async def _decline(self, person: str, chat_id: str) -> None:
        """Reply to an ephemeral message, visible only to its sender, that these are not answered:
        an answer in several parts would not stay private. Best effort."""
        try:
            await self._client.bot.send_message(
                self._chats.current(chat_id),
                _NOT_EPHEMERAL,
                api_kwargs={"receiver_user_id": person},
            )
        except (TelegramError, SendRefused) as error:
            logger.warning("telegram: an ephemeral message was not answered: {}", error)

    async def _acknowledge(self, press: Press, *, is_valid: bool) -> None:
        """Stop the button's spinner, and remove the buttons once one was used. Best effort."""
        bot = self._client.bot
        try:
            await bot.answer_callback_query(press.query_id, text=None if is_valid else _NOT_VALID)
            if is_valid:
                await bot.edit_message_reply_markup(press.place, press.message_id)
        except TelegramError as error:
            logger.debug("telegram: a pressed button was not acknowledged: {}", error)


POLL_SECONDS = 30
STALL_SECONDS = 90.0
ROUND_SECONDS = POLL_SECONDS + 30.0
"""If no poll is answered or rejected for this long, polling has died."""

_FRESH = timedelta(days=6)
_IDLE_PAUSE = 0.25
"""Seconds between polls that are answered at once without updates, which Telegram never does."""

_QUICK = 1.0
_ID_LIMIT = 2**63  # no update id, and no offset that Telegram accepts, is this high


class Cursor(Struct, frozen=True):
    """The position up to which updates are stored: the next one is `offset`, and the last one came
    at `at`.

    After a week without updates Telegram restarts the numbers anywhere, and another bot has other
    numbers, so the offset is ignored then. The inbox recognizes repeated updates."""

    bot_id: int
    offset: int
    at: datetime

    def __str__(self) -> str:
        return f"{self.bot_id}:{self.offset}:{self.at.isoformat()}"

    @classmethod
    def parse(cls, text: str | None) -> Cursor | None:
        """Parse a stored cursor. None if there is none or it is not ours."""
        try:
            bot_id, offset, at = (text or "").split(":", 2)
            cursor = cls(int(bot_id), int(offset), datetime.fromisoformat(at))
        except ValueError:
            return None
        return cursor if cursor.at.tzinfo is not None else None


class Polling:
    """Polling for the bot with this id, whose updates are ingested until cancelled."""

    def __init__(
        self,
        client: TelegramClient,
        host: ChannelHost,
        ingest: UpdateIngest,
        bot_id: int,
        health: HealthReporter,
    ) -> None:
        self._client, self._host, self._ingest = client, host, ingest
        self._bot_id, self._health = bot_id, health
        self._clock = host.clock
        self._backoff = Backoff(self._clock)
        self._answered = self._clock.monotonic()
        self._was_away = False

    async def run(self) -> None:
        """Poll until cancelled. Raises `ChannelOff` if the token is invalid."""
        cursor = Cursor.parse(await self._host.cursor())
        self._host.report_alive(ROUND_SECONDS)
        while True:
            now, is_usable = (
                self._clock.now(),
                False,
            )  # whether Telegram still continues these numbers
            if cursor is not None and cursor.bot_id == self._bot_id:
                is_usable = abs(now - cursor.at) <= _FRESH
            cursor = await self._poll(cursor if is_usable else None)

    async def _poll(self, cursor: Cursor | None) -> Cursor | None:
        """Poll once and store the updates. Return the next cursor."""
        asked = self._clock.monotonic()
        left = max(self._answered + STALL_SECONDS - asked, 0.0)
        seconds = 0 if self._was_away else POLL_SECONDS  # report the recovery at once
        offset = cursor.offset if cursor else None
        try:
            updates = await with_timeout(
                self._clock, left, self._client.get_updates(offset, seconds)
            )
        except TimeoutError:
            await self._reconnect()
            return cursor
        except TelegramError as error:
            await self._recover(error)
            return cursor
        self._host.report_alive(ROUND_SECONDS)
        self._was_away = False
        following = self._after(updates, cursor)
        try:
            if updates:
                await self._ingest.ingest(updates, str(following) if following else None)
        except StorageError as error:
            self._health.report(
                "connection", f"new messages can't be stored and remain at Telegram: {error}"
            )
            await self._pause(self._backoff.next(), heard=True)
            self._answered = self._clock.monotonic()
            return cursor
        self._backoff.reset()
        self._health.resolve("connection")
        self._answered = self._clock.monotonic()
        if following == cursor and self._answered - asked < _QUICK:
            await self._clock.sleep(_IDLE_PAUSE)
        self._host.report_alive(ROUND_SECONDS)
        return following

    def _after(self, updates: Sequence[object], cursor: Cursor | None) -> Cursor | None:
        """Return the cursor that also covers these updates."""
        ids = [update.get("update_id") for update in updates if isinstance(update, dict)]
        known = [id for id in ids if isinstance(id, int) and 0 <= id < _ID_LIMIT]
        following = max(known, default=-1) + 1
        if not known or (cursor is not None and following <= cursor.offset):
            return cursor
        return Cursor(self._bot_id, following, self._clock.now())

    async def _reconnect(self) -> None:
        text = f"no response to polling for {STALL_SECONDS:.0f} s; reconnecting"
        if self._health.problems:
            logger.debug("telegram: {}", text)
        else:
            self._health.report("connection", text)
        await self._client.rebuild_polling()
        self._answered = self._clock.monotonic()

    async def _recover(self, error: TelegramError) -> None:
        """Report an error, fix it if possible, and wait."""
        if not isinstance(error, NetworkError):  # Telegram itself answered
            self._answered = self._clock.monotonic()
        self._was_away = isinstance(error, NetworkError)
        match error:
            case InvalidToken():
                await self._client.verify_token(error, self._health)
            case Conflict():
                await self._resolve_conflict()
            case _:
                self._health.report("connection", f"Telegram cannot be reached: {error}")
        heard = not isinstance(error, MaybeSent)  # else it was sent without an answer
        await self._pause(self._backoff.next(wait_after(error)), heard=heard)

    async def _pause(self, seconds: float, *, heard: bool) -> None:
        if heard:
            self._host.report_alive(seconds + ROUND_SECONDS)
        await self._clock.sleep(seconds)

    async def _resolve_conflict(self) -> None:
        """Find out who else gets the updates: remove a webhook, or report another program."""
        try:
            webhook = (await self._client.bot.get_webhook_info()).url
            if webhook:
                await self._client.bot.delete_webhook(drop_pending_updates=False)
        except TelegramError as error:
            self._health.report("connection", f"Telegram cannot be reached: {error}")
            return
        text = "another program is polling for this bot's messages; stop it"
        if webhook:
            text = "a webhook was set for this bot. It was removed because nanobot uses polling"
        self._health.report("connection", text)
