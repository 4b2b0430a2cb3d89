"""The kinds of values that keys take, beyond pydantic's own: addresses, keys, counts, durations."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr

from nanobot.config.base import Fault

OFFICIAL_API = "https://api.openai.com/v1"

_HOST = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?")


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


def checked_id(text: str) -> str:
    """The id of a person or a group as the platform has it. Raises `Unfit`."""
    identity = text.strip()
    if not identity:
        raise Unfit("must not be empty")
    if identity.startswith("@") and ":" not in identity:
        raise Unfit(
            "must be an id, not a name",
            "Names can change hands. Write the numeric id; `nanobot pair list` shows it after that "
            "person wrote to the bot.",
        )
    return identity


def _checked_host(text: str) -> str:
    name = text.strip().lower()
    bare = name.removeprefix("[").removesuffix("]")
    if not _HOST.fullmatch(name) and not _is_ipv6(bare):
        raise Unfit(
            "must be a host name or an address alone",
            "Write it like bot.example.org or 127.0.0.1, without http:// and port.",
        )
    return bare


def _is_ipv6(text: str) -> bool:
    import ipaddress  # rarely needed

    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


Url = Annotated[str, AfterValidator(_checked_url)]
ApiKey = Annotated[SecretStr, AfterValidator(_checked_key)]
Name = Annotated[str, Field(min_length=1)]
PersonId = Annotated[str, AfterValidator(checked_id)]
HostName = Annotated[str, AfterValidator(_checked_host)]
Count = Annotated[int, Field(ge=1)]
Duration = Annotated[float, Field(ge=0)]
Seconds = Annotated[float, Field(gt=0)]


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
