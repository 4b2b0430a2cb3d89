"""What `nanobot doctor` asks of Telegram: whether the token is good, and whether calls get through.

Both questions change nothing at Telegram and acknowledge no update, so a gateway may be running.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from datetime import datetime, timedelta

from telegram.error import InvalidToken, TelegramError

from nanobot.channel.entry_points import CheckFinding, CheckRequest
from nanobot_telegram.client import TelegramClient, token_refused
from nanobot_telegram.settings import TelegramSettings

_RECENTLY = timedelta(hours=1)


async def check(request: CheckRequest) -> Sequence[CheckFinding]:
    """Whether the bot can be reached and, in webhook mode, can be called."""
    options = request.options
    if not isinstance(options, TelegramSettings):
        raise TypeError("the options are those of another channel")
    async with aclosing(TelegramClient(options, request.clock)) as client:
        try:
            async with asyncio.timeout(request.seconds):
                me = await client.me()
                text = f"Telegram knows the bot @{me.username}"
                found = [CheckFinding("ok", text, told=client.server_time)]
                if options.mode == "webhook":
                    found.append(await _webhook(client, options.webhook_url, request.clock.now()))
                return found
        except InvalidToken:
            refused = token_refused()
            return [CheckFinding("fail", str(refused), refused.hint)]
        except (TelegramError, TimeoutError) as error:
            reason = str(error) or f"no answer within {request.seconds:.0f} s"
            hint = (
                "Is this machine online, and may it reach Telegram? channels.telegram.proxy helps."
            )
            return [CheckFinding("fail", f"Telegram cannot be reached: {reason}", hint)]


async def _webhook(client: TelegramClient, wanted: str, now: datetime) -> CheckFinding:
    """What Telegram says of the address that it is to call."""
    info = await client.bot.get_webhook_info()
    if info.url != wanted:
        hint = "`nanobot gateway` registers it when it starts."
        return CheckFinding("warn", f"Telegram was not told to call {wanted} yet", hint)
    if info.last_error_date is not None and now - info.last_error_date < _RECENTLY:
        said = info.last_error_message or "it does not say why"
        hint = "Can the address be reached from outside? docs/channels/telegram.md says how."
        return CheckFinding("warn", f"Telegram could not call {wanted}: {said}", hint)
    return CheckFinding("ok", f"Telegram calls {wanted}")
