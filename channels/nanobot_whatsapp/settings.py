"""The settings of WhatsApp. Light: checking the configuration loads neither transport.

Error messages do not repeat values, which may be secrets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from nanobot.validation import (
    Check,
    Checked,
    Fault,
    SecretStr,
    address_parts,
    check_client_proxy,
)

OFFICIAL_API = "https://graph.facebook.com"

_PATH = re.compile(r"/[A-Za-z0-9._~/-]+", re.ASCII)
_SECRET = re.compile(r"[\x21-\x7e]{6,1000}")


def match_pattern(pattern: str, problem: str, trimmed: str = " ") -> Check:
    """Check that a text matches `pattern`, after removing `trimmed` characters from its end."""
    compiled = re.compile(pattern, re.ASCII)

    def check(text: str) -> str:
        value = text.strip().rstrip(trimmed)
        if not compiled.fullmatch(value):
            raise ValueError(problem)
        return value

    return Check(check)


def check_secret(secret: SecretStr) -> SecretStr:
    value = secret.get_secret_value().strip()
    if value and not _SECRET.fullmatch(value):
        raise ValueError("must be at least 6 characters without spaces")
    return SecretStr(value)


def check_api_address(text: str) -> str:
    url = text.strip().rstrip("/")
    parts = address_parts(url, "https", "http")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError(
            f"must be an address such as {OFFICIAL_API}, without a user name, '?', or '#'"
        )
    return url


Secret = Annotated[SecretStr, Check(check_secret)]


def check_webhook_address(text: str) -> str:
    url = text.strip()
    if url:
        parts = address_parts(url, "https")
        if parts.username is not None or parts.query or parts.fragment:
            raise ValueError("must not contain a user name, '?', or '#'")
        if not _PATH.fullmatch(parts.path.rstrip("/")):
            raise ValueError("must contain a path, such as https://example.org/whatsapp")
    return url


class WhatsAppSettings(Checked, frozen=True):
    """The keys of `channels.whatsapp`, in addition to the keys of every channel."""

    transport: Literal["linked", "cloud"] = "linked"
    """Link a device to your number (`linked`), or use Meta's Cloud API (`cloud`)."""
    pairing: Literal["auto", "always", "never"] = "auto"
    """Whether strangers get a pairing code in private chats: `always`, `never`, or `auto` (only
    with the Cloud API)."""
    read_receipts: bool = True
    """Whether nanobot marks accepted messages as read."""
    self_chat: bool = False
    """Linked: whether the agent answers in your chat with yourself."""
    node: Annotated[
        str, match_pattern(r"[^\x00-\x1f\x7f]+", "must be the name of a program, or the path to it")
    ] = "node"
    """Linked: the name or path of the Node.js program."""
    phone_number_id: Annotated[
        str,
        match_pattern(
            r"([0-9]{5,32})?",
            "must be digits: the phone number's id, which is not the number itself",
        ),
    ] = ""
    """Cloud: the phone number's id from Meta's app dashboard."""
    access_token: Secret = SecretStr("")
    """Cloud: a system user's access token."""
    app_secret: Secret = SecretStr("")
    """Cloud: the app secret, which verifies Meta's signatures."""
    verify_token: Secret = SecretStr("")
    """Cloud: a random text that you choose and also enter on Meta's website."""
    webhook_url: Annotated[str, Check(check_webhook_address)] = ""
    """Cloud: the webhook's public https URL."""
    base_url: Annotated[str, Check(check_api_address)] = OFFICIAL_API
    """Cloud: the URL of the Graph API."""
    proxy: Annotated[SecretStr, Check(check_client_proxy)] = SecretStr("")
    """Cloud: an http, https, or socks5 proxy for the Graph API. Proxy environment variables are
    ignored."""

    def faults(self, home: Path) -> Iterator[Fault]:
        if self.transport != "cloud":
            for key in ("webhook_url", "proxy"):
                if len(getattr(self, key)):
                    yield Fault((key,), "works only with transport: cloud")
            return
        if self.self_chat:
            yield Fault(("self_chat",), "works only with transport: linked")
        required = ("phone_number_id", "access_token", "app_secret", "verify_token", "webhook_url")
        for key in required:
            if not len(getattr(self, key)):
                yield Fault((key,), "is required with transport: cloud")

    @property
    def answers_strangers(self) -> bool:
        """True if strangers in private chats get a pairing code."""
        return self.pairing == "always" or (self.pairing == "auto" and self.transport == "cloud")

    @property
    def local_path(self) -> str:
        """The path to register with the HTTP server."""
        return urlsplit(self.webhook_url).path.rstrip("/")
