"""The settings of Telegram. Light: checking the configuration loads no platform library.

Error messages do not repeat values, which may be secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from nanobot.validation import (
    Check,
    Checked,
    Fault,
    SecretStr,
    address_parts,
    check_client_proxy,
)

OFFICIAL_API = "https://api.telegram.org"

_TOKEN = re.compile(r"[0-9]{1,20}:[A-Za-z0-9_-]{3,128}", re.ASCII)
_PATH = re.compile(r"/[A-Za-z0-9._~/-]+", re.ASCII)


def check_token(secret: SecretStr) -> SecretStr:
    token = secret.get_secret_value().strip().removeprefix("bot")
    if not _TOKEN.fullmatch(token):
        raise ValueError(
            "doesn't look like a BotFather token: digits, a colon, then letters and digits"
        )
    return SecretStr(token)


def check_api_address(text: str) -> str:
    url = text.strip().rstrip("/").removesuffix("/bot").rstrip("/")
    parts = address_parts(url, "https", "http")
    if parts.username is not None or parts.query or parts.fragment or "{" in url:
        raise ValueError(
            f"must be an address such as {OFFICIAL_API}, without a user name, '?', or '#'"
        )
    return url


class TelegramSettings(Checked, frozen=True):
    """The keys of `channels.telegram`, in addition to the keys of every channel."""

    token: Annotated[SecretStr, Check(check_token)]
    """The bot's token, from BotFather."""
    base_url: Annotated[str, Check(check_api_address)] = OFFICIAL_API
    """The URL of the Bot API, if you run your own server."""
    webhook_url: Annotated[str, Check(str.strip)] = ""
    """The webhook's public https URL. Empty: use polling."""
    proxy: Annotated[SecretStr, Check(check_client_proxy)] = SecretStr("")
    """An http, https, or socks5 proxy, such as `socks5://127.0.0.1:1080`. Proxy environment
    variables are ignored."""
    previews: bool = True
    """Whether replies stream in private chats."""

    reactions: bool = True
    """Whether reactions show a message's status, if the chat allows reactions."""

    def faults(self, home: Path) -> Iterator[Fault]:
        if self.webhook_url:
            # Telegram accepts only https. Your own Bot API server accepts both.
            try:
                schemes = ["https"] if self.base_url == OFFICIAL_API else ["https", "http"]
                parts = address_parts(self.webhook_url, *schemes)
            except ValueError as error:
                yield Fault(("webhook_url",), str(error))
                return
            if parts.username is not None or parts.fragment:
                yield Fault(("webhook_url",), "must not contain a user name or '#'")
            elif not _PATH.fullmatch(parts.path.rstrip("/")):
                text = "must contain a path, such as https://example.org/telegram"
                yield Fault(("webhook_url",), text)

    @property
    def local_path(self) -> str:
        """The path to register with the HTTP server."""
        return urlsplit(self.webhook_url).path.rstrip("/")
