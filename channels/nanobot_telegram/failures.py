"""What can go wrong between us and Telegram, by what to do about it.

TelegramError          of the library
├── InvalidToken       Telegram said 401 or 404: the token is of no use
├── Forbidden          the bot was blocked or removed
├── ChatMigrated       the group has another id now (`new_chat_id`)
├── Conflict           another program polls, or a webhook is set
├── Flooded            wait `seconds`
└── NetworkError
    ├── BadRequest     Telegram refuses this request, however often it is made
    ├── NotSent        it never reached Telegram: try again at once, nothing can happen twice
    ├── MaybeSent      it went out, and no answer that can be read came back
    └── ServerFault    an answer came, and it was not Telegram's or was 5xx (`status`)

The texts are made here or are Telegram's own words, shortened. They never hold an address, because
the addresses of the Bot API hold the token; and none of these has a cause or a context that does.
"""

from __future__ import annotations

from collections.abc import Mapping

from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    Forbidden,
    InvalidToken,
    NetworkError,
    TelegramError,
)

from nanobot.errors import SendError, SendLater, SendRefused, SendUnknown

_WORDS = 300
"""As much of what the other side says as is repeated, in characters."""

_LONGEST_WAIT = 3600.0
_USUAL_WAIT = 5.0
"""Seconds, where Telegram asks to wait and does not say for how long."""


_REFUSALS: Mapping[int, type[TelegramError]] = {
    401: InvalidToken,
    403: Forbidden,
    404: InvalidToken,
    409: Conflict,
}


class NotSent(NetworkError):
    """The request never reached Telegram."""


class MaybeSent(NetworkError):
    """The request went out; whether Telegram acted on it is not known."""


class ServerFault(NetworkError):
    """The server failed, or something on the way answered in its place. `status` is HTTP's."""

    __slots__ = ("status",)

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Flooded(TelegramError):
    """Too many requests: wait `seconds`.

    The library's own error for this warns of its deprecation wherever it is made.
    """

    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        super().__init__(f"Telegram asks to wait {seconds:.0f} s")
        self.seconds = seconds


def refusal(code: int, said: object, parameters: object = None) -> TelegramError:
    """The error for an answer of Telegram's own that is not `ok`.

    `code` is its `error_code`, `said` its `description`, `parameters` what goes with them.
    """
    details: Mapping[object, object] = parameters if isinstance(parameters, dict) else {}
    words = said[:_WORDS] if isinstance(said, str) and said else f"error {code}"
    if isinstance(moved := details.get("migrate_to_chat_id"), int):
        return ChatMigrated(moved)
    if code == 429:
        return Flooded(wait(details.get("retry_after")))
    if known := _REFUSALS.get(code):
        return known(words)
    return BadRequest(words) if 400 <= code < 500 else ServerFault(words, code)


def wait(seconds: object) -> float:
    """How long to wait where a server asks for it: a number, or a text that is one."""
    try:
        asked = float(seconds) if isinstance(seconds, int | float | str) else 0.0
    except (ValueError, OverflowError):
        asked = 0.0
    return min(asked, _LONGEST_WAIT) if asked > 0 else _USUAL_WAIT


def requested_wait(error: TelegramError) -> float:
    """The seconds for which Telegram asks to be left alone; 0 where it does not."""
    return error.seconds if isinstance(error, Flooded) else 0.0


def is_not_modified(refusal: str) -> bool:
    """Whether an edit was refused because the message already reads so: that is success."""
    return "message is not modified" in refusal.casefold()


def as_send_error(error: Exception) -> SendError:
    """What the core should do about `error`; raise it `from None`."""
    match error:
        case SendError():
            return error
        case Flooded():
            return SendLater(str(error), retry_after=error.seconds)
        case MaybeSent():
            return SendUnknown(f"Telegram did not confirm it: {error}")
        case Forbidden() | BadRequest() | ChatMigrated():
            return SendRefused(f"Telegram refuses it: {error}")
        case TelegramError():
            known = isinstance(error, InvalidToken)
            what = "does not accept the bot token" if known else "cannot be reached"
            return SendError(f"Telegram {what}: {error}")
        case _:
            # Not ours, so perhaps after Telegram acted on it; the text might hold an address.
            return SendUnknown(f"Telegram did not confirm it ({type(error).__name__})")
