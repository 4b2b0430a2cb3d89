"""The kinds of values that keys take, beyond pydantic's own: addresses, keys, counts, durations."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr

from nanobot.config.base import Fault

OFFICIAL_API = "https://api.openai.com/v1"


class Unfit(ValueError):
    """A value that a field cannot take. The texts never repeat it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def _checked_url(text: str) -> str:
    url = text.strip().rstrip("/")
    example = f"Write it like {OFFICIAL_API} or http://127.0.0.1:11434/v1."
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or any(character.isspace() for character in url):
        raise Unfit("must be an address that begins with http:// or https://", example)
    if parts.username is not None or parts.password is not None:
        raise Unfit("must not hold a user name or password", "Put the key into `api_key`.")
    if parts.query or parts.fragment:
        raise Unfit("must not hold '?' or '#'", example)
    if parts.path.endswith(("/chat/completions", "/completions", "/responses")):
        raise Unfit("must stop before the name of the operation", "Leave off what follows /v1.")
    return url


def _checked_key(secret: SecretStr) -> SecretStr:
    key = secret.get_secret_value().strip()
    if not all("!" <= character <= "~" for character in key):
        raise Unfit(
            "holds a space, a line break or a character beyond ASCII, which no key has",
            "Copy the key again, on its own.",
        )
    return SecretStr(key)


Url = Annotated[str, AfterValidator(_checked_url)]
ApiKey = Annotated[SecretStr, AfterValidator(_checked_key)]
Name = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=1)]
Duration = Annotated[float, Field(ge=0)]


def is_official(base_url: str) -> bool:
    """Whether an address is that of the official OpenAI API."""
    return urlsplit(base_url).hostname == urlsplit(OFFICIAL_API).hostname


def needs_key(base_url: str, api_key: SecretStr) -> bool:
    """Whether the server asks for a key that is not there."""
    return is_official(base_url) and not api_key.get_secret_value()


def no_key(*key: str | int) -> Fault:
    """What is wrong where a key is needed at `key`, relative to its section."""
    return Fault(
        key,
        "is required by the official OpenAI API",
        "Write `api_key: ${OPENAI_API_KEY}` and set that variable; "
        "for another server set `base_url`.",
    )
