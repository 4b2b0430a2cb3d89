"""What `nanobot doctor` asks of Telegram: whether the token is good, and whether calls get through.

Both questions change nothing at Telegram and confirm no update, so a gateway may be running.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from telegram.error import InvalidToken, TelegramError

from nanobot.channel import CheckFinding, CheckRequest
from nanobot_telegram.client import token_refused
from nanobot_telegram.settings import TelegramSettings
from nanobot_telegram.wire import Wire

_ANSWER_BYTES = 1_000_000
_LATELY = timedelta(hours=1)


async def check(request: CheckRequest) -> Sequence[CheckFinding]:
    """Whether the bot can be reached and, in webhook mode, can be called."""
    options = request.options
    if not isinstance(options, TelegramSettings):
        raise TypeError("the options are those of another channel")
    token, proxy = options.token.get_secret_value(), options.proxy.get_secret_value()
    wire = Wire(token, proxy, answer_bytes=_ANSWER_BYTES, seconds=request.seconds)
    try:
        return await _found(wire, options, request.clock.now())
    except InvalidToken:
        refused = token_refused()
        return [CheckFinding("fail", str(refused), refused.hint)]
    except TelegramError as error:
        hint = "Is this machine online, and may it reach Telegram? channels.telegram.proxy helps."
        return [CheckFinding("fail", f"Telegram cannot be reached: {error}", hint)]
    finally:
        await wire.aclose()


async def _found(wire: Wire, options: TelegramSettings, now: datetime) -> list[CheckFinding]:
    root = f"{options.base_url}/bot{options.token.get_secret_value()}"
    me, _ = await wire.post(f"{root}/getMe", {})
    told = _time(wire.date)
    name = _text(me, "username")
    found = [CheckFinding("ok", f"Telegram knows the bot @{name}", told=told)]
    if options.mode == "webhook":
        info, _ = await wire.post(f"{root}/getWebhookInfo", {})
        found.append(_webhook(info, options.webhook_url, now))
    return found


def _webhook(info: object, wanted: str, now: datetime) -> CheckFinding:
    """What Telegram says of the address that it is to call."""
    if _text(info, "url") != wanted:
        hint = "`nanobot gateway` tells it when it starts."
        return CheckFinding("warn", f"Telegram was not told to call {wanted} yet", hint)
    failed = info.get("last_error_date") if isinstance(info, dict) else None
    if isinstance(failed, int) and now - datetime.fromtimestamp(failed, UTC) < _LATELY:
        said = _text(info, "last_error_message") or "it does not say why"
        hint = "Can the address be reached from outside? docs/channels/telegram.md says how."
        return CheckFinding("warn", f"Telegram could not call {wanted}: {said}", hint)
    return CheckFinding("ok", f"Telegram calls {wanted}")


def _text(answer: object, key: str) -> str:
    value = answer.get(key) if isinstance(answer, Mapping) else None
    return value if isinstance(value, str) else ""


def _time(date: str) -> datetime | None:
    try:
        return parsedate_to_datetime(date).astimezone(UTC)
    except ValueError:
        return None
