"""Requests to the Bot API: a call returns Telegram's result, or raises one of the errors below.

No error, context or log line contains an address, because addresses contain the token (see
`nanobot.channel.http`).

The errors, one for each reaction:

TelegramError          of the library
├── InvalidToken       401 or 404: the token is invalid
├── Forbidden          the bot was blocked or removed
├── ChatMigrated       the group has another id now (`new_chat_id`)
├── Conflict           another program polls, or a webhook is set
├── Flooded            wait `seconds`
└── NetworkError
    ├── BadRequest     Telegram will always reject this request
    ├── NotSent        it never reached Telegram: repeat it at once, without a duplicate
    ├── MaybeSent      it was sent, and no readable answer came back
    └── ServerFault    it was sent, and a proxy answered, or Telegram with 5xx (`status`)

Their texts are nanobot's or Telegram's, shortened."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from loguru import logger
from msgspec import Struct
from telegram import Bot, TelegramObject
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    Forbidden,
    InvalidToken,
    NetworkError,
    TelegramError,
)
from telegram.request import BaseRequest, RequestData

from nanobot.channel.health import HealthReporter
from nanobot.channel.http import (
    AnswerTooLarge,
    BadAddress,
    HttpAnswer,
    HttpClient,
    HttpFault,
    Unsent,
)
from nanobot.clock import Backoff, Clock
from nanobot.errors import ChannelOff, SendError, SendLater, SendRefused, SendUnknown
from nanobot.parsing import off_loop, parse_json
from nanobot_telegram.settings import TelegramSettings

_WORDS = 300  # characters of the server's text that errors repeat

_LONGEST_WAIT = 3600.0
_USUAL_WAIT = 5.0  # seconds, if Telegram asks to wait without a time


_REFUSALS: Mapping[int, type[TelegramError]] = {
    401: InvalidToken,
    403: Forbidden,
    404: InvalidToken,
    409: Conflict,
}


class NotSent(NetworkError):
    """The request never reached Telegram."""


class MaybeSent(NetworkError):
    """The request was sent, and Telegram may have acted on it."""


class ServerFault(NetworkError):
    """The server failed or a proxy answered in its place. Telegram may have acted on the request.
    `status` is HTTP's."""

    __slots__ = ("status",)

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Flooded(TelegramError):
    """Too many requests: wait `seconds`.

    The library's own error emits a deprecation warning whenever it is created."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        super().__init__(f"Telegram asks nanobot to wait {seconds:.0f} s")
        self.seconds = seconds


def refusal(code: int, said: object, parameters: object = None) -> TelegramError:
    """Return the error for an answer of Telegram's own that is not `ok`.

    `code` is its `error_code`, `said` its `description`."""
    details: Mapping[object, object] = parameters if isinstance(parameters, dict) else {}
    words = said[:_WORDS] if isinstance(said, str) and said else f"error {code}"
    if isinstance(moved := details.get("migrate_to_chat_id"), int):
        return ChatMigrated(moved)
    if code == 429:
        return Flooded(parse_wait(details.get("retry_after")))
    if known := _REFUSALS.get(code):
        return known(words)
    return BadRequest(words) if 400 <= code < 500 else ServerFault(words, code)


def parse_wait(seconds: object) -> float:
    """Return the seconds to wait, from a server's number or text."""
    try:
        asked = float(seconds) if isinstance(seconds, int | float | str) else 0.0
    except (ValueError, OverflowError):
        asked = 0.0
    return min(asked, _LONGEST_WAIT) if asked > 0 else _USUAL_WAIT


def wait_after(error: TelegramError) -> float:
    """Return the seconds for which Telegram asks to wait, or 0."""
    return error.seconds if isinstance(error, Flooded) else 0.0


def as_send_error(error: Exception) -> SendError:
    """Return the core's error for `error`. Raise it `from None`."""
    match error:
        case SendError():
            return error
        case Flooded():
            return SendLater(str(error), retry_after=error.seconds)
        case NotSent() | InvalidToken():
            sent = isinstance(error, InvalidToken)
            what = "does not accept the bot token" if sent else "cannot be reached"
            return SendLater(f"Telegram {what}: {error}")
        case Forbidden() | BadRequest() | ChatMigrated():
            return SendRefused(f"Telegram rejected it: {error}")
        case TelegramError():
            return SendUnknown(f"Telegram did not confirm it: {error}")
        case _:
            # A foreign error: Telegram may have acted, and its text might contain an address.
            return SendUnknown(f"Telegram did not confirm it ({type(error).__name__})")


_WITH_FILES = 600.0  # the time limit in seconds of a request with files


class Wire:
    """Connections of one kind. `answer_bytes` limits an answer, `seconds` a request without files.

    Connects at the first request. Close it at the end."""

    def __init__(self, token: str, proxy: str, *, answer_bytes: int, seconds: float) -> None:
        logging.getLogger("telegram").setLevel(logging.WARNING)  # below, it logs whole addresses
        self._http = HttpClient(token.partition(":")[2] or token, proxy=proxy)
        self._answer_bytes, self._seconds = answer_bytes, seconds

    async def aclose(self) -> None:
        """Close all connections. Pending requests raise `MaybeSent`."""
        await self._http.close()

    async def renew(self) -> None:
        """Close all connections. The next request opens new ones."""
        await self._http.renew()

    async def post(
        self,
        url: str,
        fields: Mapping[str, str],
        files: Mapping[str, Any] | None = None,
        *,
        patience: float = 0.0,
    ) -> tuple[object, bytes]:
        """Call a method. Return its result, and the raw answer.

        `patience` are extra seconds that the server may take to answer. Raises a
        `TelegramError`."""
        seconds = patience + (_WITH_FILES if files else self._seconds)
        limit = self._answer_bytes
        answer = await self._request("POST", url, seconds, limit, data=fields, files=files or None)
        return await off_loop(len(answer.body), self._result, answer), answer.body

    async def get(self, url: str, limit: int, seconds: float) -> bytes:
        """Return a file of at most `limit` bytes. Raises a `TelegramError`."""
        answer = await self._request("GET", url, seconds, limit)
        if answer.status != HTTPStatus.OK:
            self._result(answer)
            raise ServerFault("the answer is not a file", answer.status)
        return answer.body

    async def _request(
        self, method: str, url: str, seconds: float, limit: int, **content: Any
    ) -> HttpAnswer:
        try:
            return await self._http.request(method, url, seconds, limit, **content)
        except Unsent as error:
            raise NotSent(str(error)) from None
        except (AnswerTooLarge, BadAddress) as error:
            # The effect of an answered call is unknown. Fetching a file has none.
            is_call = method == "POST" and isinstance(error, AnswerTooLarge)
            raise (MaybeSent if is_call else BadRequest)(str(error)) from None
        except HttpFault as error:
            raise MaybeSent(str(error)) from None

    def _result(self, answer: HttpAnswer) -> object:
        status = answer.status
        try:
            # Telegram bounds its answers, and each update is bounded when it is parsed. Rejecting
            # all updates for a single one would block the channel.
            document = parse_json(answer.body, most=len(answer.body))
        except ValueError:
            document = None
        if isinstance(document, dict):
            if document.get("ok") is True and "result" in document and status < 300:
                return document["result"]
            if document.get("ok") is False:
                code, said = document.get("error_code"), document.get("description")
                raise refusal(
                    code if isinstance(code, int) else status,
                    self._http.redact(said) if isinstance(said, str) else "",
                    document.get("parameters"),
                )
        # The answer of another server, such as a proxy.
        if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            raise BadRequest("the request is too large")
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            raise Flooded(parse_wait(answer.retry_after))
        if 200 <= status < 300:
            raise MaybeSent("the answer did not come from Telegram")
        raise ServerFault(f"HTTP status {status}", status)


class ApiRequest(BaseRequest):
    """The library's request class, over a `Wire`. Errors are raised here, before the library can
    put an answer or an address into its own errors."""

    __slots__ = ("_wire",)

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    @property
    def read_timeout(self) -> float | None:
        """None: the wire bounds each request as a whole."""
        return None

    async def initialize(self) -> None:
        """Do nothing: the owner opens the wire."""

    async def shutdown(self) -> None:
        """Do nothing: the owner closes the wire."""

    async def do_request(
        self,
        url: str,
        method: str,
        request_data: RequestData | None = None,
        read_timeout: object = None,
        write_timeout: object = None,
        connect_timeout: object = None,
        pool_timeout: object = None,
    ) -> tuple[int, bytes]:
        """Return the status, always 200, and the answer. Raises a `TelegramError`.

        An answer of `ok` means that Telegram accepted the message. If the library failed on its
        description (a new kind of entity, fields missing from another server), the message would
        count as not delivered and be sent again. So the library gets only the ids of messages."""
        fields = request_data.json_parameters if request_data else {}
        files = request_data.multipart_data if request_data else None
        result, body = await self._wire.post(url, fields, files)
        short: object = slim_message(result)
        if isinstance(result, list):
            messages = [slim_message(one) for one in result]
            short = messages if None not in messages else None
        if short:
            body = json.dumps({"ok": True, "result": short}).encode()
        return int(HTTPStatus.OK), body


def slim_message(message: object) -> dict[str, object] | None:
    """Return a message with only its id, in the shortest form that the library parses."""
    number = message.get("message_id") if isinstance(message, dict) else None
    if not isinstance(number, int):
        return None
    return {"message_id": number, "date": 1, "chat": {"id": 1, "type": "private"}}


def dump_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=TelegramObject.to_dict)


ALLOWED_UPDATES = (
    "message",
    "edited_message",
    "callback_query",
    "my_chat_member",
    "message_reaction",
)
BATCH = 100
NO_LINK_PREVIEW = '{"is_disabled": true}'
"""Link previews are off: they would fill a reply that quotes ten pages, and fetch pages that a
manipulated model names."""

_MEGABYTE = 1_000_000
_CALL_SECONDS = 60.0
_POLL_SECONDS = 15.0  # in addition to the wait time in the poll

DOWNLOAD_SECONDS = 50.0
"""The time limit of a download, with retries and pauses. It is below the core's limit of a minute,
so that the core can report the reason."""

_DOWNLOAD_TRIES = 3


class Identity(Struct, frozen=True):
    """The bot's account. `username` has no @."""

    id: int
    username: str


class TelegramClient:
    """The adapter's requests to Telegram. Raises the errors above."""

    def __init__(self, options: TelegramSettings, clock: Clock) -> None:
        token, proxy = options.token.get_secret_value(), options.proxy.get_secret_value()
        self._clock = clock
        self._polls = Wire(token, proxy, answer_bytes=32 * _MEGABYTE, seconds=_POLL_SECONDS)
        self._calls = Wire(token, proxy, answer_bytes=4 * _MEGABYTE, seconds=_CALL_SECONDS)
        request = ApiRequest(self._calls)
        self.bot: Bot = _Bot(
            token,
            base_url=f"{options.base_url}/bot",
            base_file_url=f"{options.base_url}/file/bot",
            request=request,
            get_updates_request=request,
        )
        """The library's bot, for all methods except `get_updates`."""
        self._url = f"{options.base_url}/bot{token}"

    async def aclose(self) -> None:
        """Close all connections."""
        await self._polls.aclose()
        await self._calls.aclose()

    async def rebuild_polling(self) -> None:
        """Open new connections for polling."""
        await self._polls.renew()

    async def get_updates(self, offset: int | None, timeout: int) -> list[object]:
        """Return raw updates from `offset` on, or none after `timeout` seconds.

        Confirms all updates before `offset`, which Telegram then forgets."""
        fields = {
            "timeout": str(timeout),
            "limit": str(BATCH),
            "allowed_updates": json.dumps(ALLOWED_UPDATES),
        }
        if offset is not None:
            fields["offset"] = str(offset)
        result, _ = await self._polls.post(f"{self._url}/getUpdates", fields, patience=timeout)
        if not isinstance(result, list):
            raise MaybeSent("the updates are not a list")
        return result

    async def me(self) -> Identity:
        """Return the bot's account, with one attempt."""
        result, _ = await self._calls.post(f"{self._url}/getMe", {})
        if not isinstance(result, dict) or not isinstance(result.get("id"), int):
            raise MaybeSent("the answer did not come from Telegram")
        username = result.get("username")  # other servers may omit it
        return Identity(result["id"], username if isinstance(username, str) else "")

    async def call(self, method: str, fields: Mapping[str, object]) -> object:
        """Call a method without files, and return its result. Parameters of None are left out. The
        library's own methods take ten times as long."""
        form = {
            name: value if isinstance(value, str) else dump_json(value)
            for name, value in fields.items()
            if value is not None
        }
        result, _ = await self._calls.post(f"{self._url}/{method}", form)
        return result

    async def send(self, method: str, fields: Mapping[str, object]) -> int:
        """Call a method that sends a message. Return the message's id."""
        result = await self.call(method, fields)
        number = result.get("message_id") if isinstance(result, dict) else None
        if not isinstance(number, int):
            raise MaybeSent("the answer did not come from Telegram")
        return number

    async def identify(self, health: HealthReporter) -> Identity:
        """Return the bot's account. Retries until Telegram is reached, and reports the problem
        until then.

        Raises `ChannelOff` if Telegram rejects the token."""
        backoff = Backoff(self._clock)
        while True:
            try:
                identity = await self.me()
            except InvalidToken:
                raise token_refused() from None
            except TelegramError as error:
                health.report("connection", f"Telegram cannot be reached: {error}")
                await backoff.wait(wait_after(error))
            else:
                logger.info("telegram: connected as @{}", identity.username)
                return identity

    async def verify_token(self, error: InvalidToken, health: HealthReporter) -> None:
        """Check the token after an answer that rejected it.

        Raises `ChannelOff` if it is invalid, and otherwise reports another problem."""
        await self.identify(health)
        health.report(
            "connection", f"Telegram accepts the bot's token but rejects the request: {error}"
        )

    async def download(self, file_id: str, limit: int, seconds: float = DOWNLOAD_SECONDS) -> bytes:
        """Return a file of at most `limit` bytes, within `seconds`.

        Raises `SendRefused` if it is larger or unavailable, and another `SendError` if Telegram
        cannot be reached in time."""
        backoff, failure = Backoff(self._clock), TelegramError("")
        try:
            async with asyncio.timeout(seconds):
                for attempt in range(_DOWNLOAD_TRIES):
                    if attempt:
                        await backoff.wait(wait_after(failure))
                    try:
                        return await self._download(file_id, limit, seconds)
                    except (BadRequest, Forbidden, InvalidToken) as error:
                        raise SendRefused(f"Telegram can't provide this file: {error}") from None
                    except TelegramError as error:
                        failure = error
        except TimeoutError:
            raise SendError(f"the file did not arrive within {seconds:.0f} s") from None
        raise as_send_error(failure)

    async def _download(self, file_id: str, limit: int, seconds: float) -> bytes:
        file = await self.bot.get_file(file_id)
        if file.file_size is not None and file.file_size > limit:
            raise SendRefused(f"the file is {file.file_size:,} bytes, but the limit is {limit:,}")
        if not file.file_path:
            raise BadRequest("it has no content")
        return await self._calls.get(file.file_path, limit, seconds)


class _Bot(Bot):
    """A bot whose `repr` does not show the token."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Bot()"


def token_refused() -> ChannelOff:
    """Return the error for an invalid token."""
    return ChannelOff(
        "Telegram does not accept the bot token",
        hint="Get a new one from @BotFather and put it into channels.telegram.token.",
    )
