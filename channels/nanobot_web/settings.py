"""The settings of the page. Light: checking the configuration loads no server."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from nanobot.validation import Check, Checked, InvalidValue

SESSIONS_FILE = "sessions.json"
"""The signed-in browsers, in the channel's folder."""


def _https(text: str) -> str:
    text = text.strip().rstrip("/")
    parts = urlsplit(text)
    if text and (parts.scheme != "https" or not parts.hostname or parts.path or parts.query):
        hint = "Use the address of a proxy in front of nanobot, such as https://bot.example.org."
        raise InvalidValue("must be a URL that begins with https:// and has no path", hint)
    return text


class WebSettings(Checked, frozen=True):
    """The page in a browser. `nanobot web` opens it, enabled or not."""

    address: Annotated[str, Check(_https)] = ""
    """The page's URL behind a TLS proxy, such as `https://bot.example.org`. Empty: only this
    machine can open the page."""
