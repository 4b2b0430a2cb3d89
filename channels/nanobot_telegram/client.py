"""The Bot API for the rest of the adapter: one bot, with separate connections for polls.

The token is in here and comes out nowhere else.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from loguru import logger
from telegram import Bot, LinkPreviewOptions
from telegram.error import BadRequest, Forbidden, InvalidToken, TelegramError

from nanobot.channel.health import Backoff, HealthReporter
from nanobot.clock import Clock
from nanobot.errors import ChannelOff, SendError, SendRefused
from nanobot_telegram.settings import TelegramSettings
from nanobot_telegram.wire import ApiRequest, MaybeSent, Wire, as_send_error, requested_wait

ALLOWED_UPDATES = (
    "message",
    "edited_message",
    "callback_query",
    "my_chat_member",
    "message_reaction",
)
BATCH = 100
NO_LINK_PREVIEW = LinkPreviewOptions(is_disabled=True)
"""Link previews are off: a reply that quotes ten pages is no page of pictures, and a page that a
model was talked into naming is not fetched on anybody's behalf."""

_MEGABYTE = 1_000_000
_CALL_SECONDS = 60.0
_POLL_SECONDS = 15.0
"""Beyond those for which Telegram was asked to wait."""

DOWNLOAD_SECONDS = 50.0
"""For a file in all, attempts and pauses included: the core gives up after a minute, and can say
why there is no file when it hears so before."""

_DOWNLOAD_TRIES = 3


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the bot is; `username` without the @."""

    id: int
    username: str


class TelegramClient:
    """What the adapter asks of Telegram. Raises the errors of `wire`."""

    def __init__(self, options: TelegramSettings, clock: Clock) -> None:
        token, proxy = options.token.get_secret_value(), options.proxy.get_secret_value()
        self._clock = clock
        self._polls = Wire(token, proxy, answer_bytes=32 * _MEGABYTE, seconds=_POLL_SECONDS)
        self._calls = Wire(token, proxy, answer_bytes=4 * _MEGABYTE, seconds=_CALL_SECONDS)
        request = ApiRequest(self._calls)
        self._bot = _Bot(
            token,
            base_url=f"{options.base_url}/bot",
            base_file_url=f"{options.base_url}/file/bot",
            request=request,
            get_updates_request=request,
        )
        self._url = f"{options.base_url}/bot{token}"

    @property
    def bot(self) -> Bot:
        """The library's bot: all methods but `get_updates`."""
        return self._bot

    @property
    def server_time(self) -> datetime | None:
        """The time that Telegram gave with its newest answer, if it was readable."""
        try:
            return parsedate_to_datetime(self._calls.date).astimezone(UTC)
        except ValueError:
            return None

    async def aclose(self) -> None:
        """Cut all connections."""
        await self._polls.aclose()
        await self._calls.aclose()

    async def rebuild_polling(self) -> None:
        """Give up the connections of the polls for new ones."""
        await self._polls.renew()

    async def get_updates(self, offset: int | None, timeout: int) -> list[object]:
        """Updates from `offset` on, as they came, or none after `timeout` seconds.

        Confirms all before `offset` to Telegram, which then forgets them.
        """
        fields = {
            "timeout": str(timeout),
            "limit": str(BATCH),
            "allowed_updates": json.dumps(ALLOWED_UPDATES),
        }
        if offset is not None:
            fields["offset"] = str(offset)
        result, _ = await self._polls.post(f"{self._url}/getUpdates", fields, patience=timeout)
        if not isinstance(result, list):
            raise MaybeSent("updates that are no list")
        return result

    async def me(self) -> Identity:
        """Who the bot is; asks once."""
        result, _ = await self._calls.post(f"{self._url}/getMe", {})
        if not isinstance(result, dict) or not isinstance(result.get("id"), int):
            raise MaybeSent("an answer that is not Telegram's")
        username = result.get("username")  # servers other than Telegram's may say less
        return Identity(result["id"], username if isinstance(username, str) else "")

    async def identify(self, health: HealthReporter) -> Identity:
        """Who the bot is. Asks until Telegram is reached, and meanwhile reports why it is not.

        Raises `ChannelOff` for a token that Telegram does not accept.
        """
        backoff = Backoff(self._clock)
        while True:
            try:
                identity = await self.me()
            except InvalidToken:
                raise token_refused() from None
            except TelegramError as error:
                health.report("connection", f"Telegram cannot be reached: {error}")
                await backoff.wait(requested_wait(error))
            else:
                logger.info("telegram: connected as @{}", identity.username)
                return identity

    async def verify_token(self, error: InvalidToken, health: HealthReporter) -> None:
        """A request was answered as if the token was invalid: check whether it is.

        Raises `ChannelOff` where it is, and otherwise reports that it is something else.
        """
        await self.identify(health)
        health.report(
            "connection", f"Telegram knows the bot and refuses the request all the same: {error}"
        )

    async def download(self, file_id: str, limit: int, seconds: float = DOWNLOAD_SECONDS) -> bytes:
        """The content of a file of at most `limit` bytes, within that time.

        Raises `SendRefused` for one that is larger or that Telegram does not have, and another
        `SendError` where it cannot be reached or does not come in time.
        """
        backoff, failure = Backoff(self._clock), TelegramError("")
        try:
            async with asyncio.timeout(seconds):
                for attempt in range(_DOWNLOAD_TRIES):
                    if attempt:
                        await backoff.wait(requested_wait(failure))
                    try:
                        return await self._download(file_id, limit, seconds)
                    except (BadRequest, Forbidden, InvalidToken) as error:
                        raise SendRefused(f"Telegram does not give this file: {error}") from None
                    except TelegramError as error:
                        failure = error
        except TimeoutError:
            raise SendError(f"the file did not come within {seconds:.0f} s") from None
        raise as_send_error(failure)

    async def _download(self, file_id: str, limit: int, seconds: float) -> bytes:
        file = await self._bot.get_file(file_id)
        if file.file_size is not None and file.file_size > limit:
            raise SendRefused(f"the file has {file.file_size:,} bytes, more than {limit:,}")
        if not file.file_path:
            raise BadRequest("it has no content")
        return await self._calls.get(file.file_path, limit, seconds)


class _Bot(Bot):
    """The library's bot shows its token wherever it is printed; this one does not."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Bot()"


def token_refused() -> ChannelOff:
    """The one clear message for a token that is of no use."""
    return ChannelOff(
        "Telegram does not accept the bot token",
        hint="Get a new one from @BotFather and put it into channels.telegram.token.",
    )
