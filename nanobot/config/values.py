"""What every section of the configuration is made of.

The kinds of values that keys take, beyond pydantic's own: addresses, keys, counts, durations.

Values that a program gets: its environment and HTTP headers, some of which are secrets.

A value is a secret unless it plainly is none: what is held to be one is blotted out wherever it
turns up, so a folder or a word such as `production` must not be.

Folders that programs of the agent's get to see, and those that they never may.

The folder of nanobot itself holds keys, sessions and the control socket: showing it, or anything
above it or in it, would undo the sandbox. The workspace is no exception: a command could put a link
there between the check and the use.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import SplitResult, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from nanobot.config import home_folder


@dataclass(frozen=True, slots=True)
class Fault:
    """Keys that do not go together. `key` is the one to change, relative to the section."""

    key: tuple[str | int, ...]
    message: str
    hint: str


class Strict(BaseModel):
    """Frozen, with no key beyond its own; built when first used, as every command passes here."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        allow_inf_nan=False,
        defer_build=True,
    )

    def faults(self, home: Path) -> Iterable[Fault]:
        """What is wrong between the keys, each right in itself; `home` is nanobot's own folder."""
        return ()

    @model_validator(mode="after")
    def _keys_go_together(self, info: ValidationInfo) -> Self:
        home = info.context if isinstance(info.context, Path) else home_folder()
        wrong = [
            InitErrorDetails(
                type=PydanticCustomError(
                    "fault", "{message}", {"message": fault.message, "hint": fault.hint}
                ),
                loc=fault.key,
                input=None,
            )
            for fault in self.faults(home)
        ]
        if wrong:
            raise ValidationError.from_exception_data(type(self).__name__, wrong)
        return self


class NoSecret(SecretStr):
    """A value that stands where secrets do and plainly is none."""


def secrets_in(
    value: object, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], SecretStr]]:
    """Every secret within a validated value, those of adapters' settings included, with the way to
    it from `path`, which is where the value stands."""
    if isinstance(value, NoSecret):
        return
    if isinstance(value, SecretStr):
        yield path, value
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from secrets_in(getattr(value, name), (*path, name))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from secrets_in(item, (*path, str(key)))
    elif isinstance(value, tuple | list | set | frozenset):
        for index, item in enumerate(value):
            yield from secrets_in(item, (*path, index))


OFFICIAL_API = "https://api.openai.com/v1"

_HOST = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?")
_WITH_PORT = re.compile(
    r"(?:\[(?P<address>[0-9a-f:.]+)\]|(?P<host>[0-9a-z._-]+)):(?P<port>[0-9]{1,5})"
)


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


def _checked_server(text: str) -> str:
    url = text.strip()
    example = "Write it like https://mcp.example.org/mcp."
    parts = _parts(url, ("http", "https"))
    if parts is None:
        raise Unfit("must be an address that begins with http:// or https://", example)
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise Unfit("must hold no user name, no '?' and no '#'", "Put the key into `headers`.")
    return url


def _checked_proxy(secret: SecretStr) -> SecretStr:
    url = secret.get_secret_value().strip().rstrip("/")
    if not url:
        return SecretStr("")
    parts = _parts(url, ("http",))
    if parts is None or parts.path or parts.query or parts.fragment:
        raise Unfit("must be the address of an http proxy", "Write it like http://127.0.0.1:3128.")
    return SecretStr(url)


def _parts(url: str, schemes: tuple[str, ...]) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    return parts if usable and not any(character.isspace() for character in url) else None


def _checked_rule(text: str) -> str:
    from nanobot.security.egress.dialling import parse_exceptions  # where the rule will be read

    rule = _in_one_form(text.strip().lower())
    try:
        parse_exceptions([rule])
    except ValueError as error:
        raise _no_rule() from error
    return rule


def _in_one_form(rule: str) -> str:
    """A host name, an address or a network, perhaps with a port; an IPv6 address with a port is in
    brackets."""
    match = _WITH_PORT.fullmatch(rule)
    if match is None:
        return _checked_place(rule)
    place = _checked_place(match["address"] or match["host"])
    if not 1 <= int(match["port"]) <= 65_535 or "/" in place:
        raise _no_rule()
    return f"[{place}]:{match['port']}" if ":" in place else f"{place}:{match['port']}"


def _checked_place(text: str) -> str:
    import ipaddress  # rarely needed

    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        if not _HOST.fullmatch(text) or text.replace(".", "").isdigit():
            raise _no_rule() from None
        return text
    if network.prefixlen == 0:
        raise Unfit("must not allow every address", "Name the hosts or networks that you mean.")
    return str(network) if "/" in text else str(network.network_address)


def _no_rule() -> Unfit:
    return Unfit(
        "must be a host name, an address or a network, perhaps with a port",
        "Write it like nas.lan, 127.0.0.1:8000, [::1]:8000 or 192.168.1.0/24.",
    )


def _checked_domain(text: str) -> str:
    """In lower case, international names as they are looked up (`xn--…`)."""
    label = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
    if not re.fullmatch(rf"(?:{label}\.)*(?=[a-z]){label}", name := text.strip().lower()):
        raise Unfit(
            "is not a domain",
            "Write it like example.org, which stands for all names below it as well.",
        )
    return name


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
Megabytes = Annotated[int, Field(ge=1, le=1_024)]
ServerUrl = Annotated[str, AfterValidator(_checked_server)]
ProxyUrl = Annotated[SecretStr, AfterValidator(_checked_proxy)]
Domain = Annotated[str, AfterValidator(_checked_domain)]
HostRule = Annotated[str, AfterValidator(_checked_rule)]


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


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}", re.ASCII)
_SECRET_NAME = re.compile(r"key|token|secret|pass|auth|credential|cookie|pwd|pin\b", re.IGNORECASE)
_PLAIN = re.compile(
    r"""
      [a-z]{1,12}                     # a word: production
    | [0-9]{1,6} | true | false
    | (?:~|\.{1,2})?/[^:@?\s]*(?::/[^:@?\s]*)*   # a path, or a list of them as in PATH
    | [A-Za-z_]{1,10}\.[Uu][Tt][Ff]-?8           # a locale: C.UTF-8
    | https?://[^@?\#\s]*             # an address that holds no key
    """,
    re.VERBOSE,
)
_RESERVED = frozenset({"LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT"})


def revealed(values: Mapping[str, SecretStr]) -> dict[str, str]:
    """The bare values, for whoever starts the program or makes the request."""
    return {name: value.get_secret_value() for name, value in values.items()}


def _variables(values: Mapping[str, SecretStr]) -> Mapping[str, SecretStr]:
    for name, value in revealed(values).items():
        if not _NAME.fullmatch(name):
            raise Unfit("must have names of variables as its keys", "Write it like `LANG: C`.")
        if name in _RESERVED:
            raise Unfit(f"cannot hold {name}, which changes every program", "Leave it out.")
        if "\0" in value:
            raise Unfit(f"{name} holds a character that no variable can", "Type it again.")
    return {name: _told_apart(name, value) for name, value in values.items()}


def _told_apart(name: str, value: SecretStr) -> SecretStr:
    bare = value.get_secret_value()
    plain = not _SECRET_NAME.search(name) and bool(_PLAIN.fullmatch(bare))
    return NoSecret(bare) if plain else value


def _headers(values: Mapping[str, SecretStr]) -> Mapping[str, SecretStr]:
    for name, value in revealed(values).items():
        if not _HEADER.fullmatch(name):
            example = "Write it like `Authorization: Bearer ${MY_TOKEN}`."
            raise Unfit("must have names of HTTP headers as its keys", example)
        if not all(" " <= character <= "~" for character in value):
            hint = "Copy it again, on its own."
            raise Unfit(f"{name} holds a line break or a character beyond ASCII", hint)
    return values


Variables = Annotated[Mapping[str, SecretStr], AfterValidator(_variables)]
Headers = Annotated[Mapping[str, SecretStr], AfterValidator(_headers)]


def unfit_to_show(path: Path, home: Path) -> str:
    """Why programs may not read `path`, which is absolute; empty where they may."""
    path, home = path.resolve(), home.resolve()
    if path in (Path("/proc"), Path("/dev"), Path("/sys"), Path("/run")):
        return "holds no files but the system itself"
    if home.is_relative_to(path):
        return "would show nanobot's own folder, with its keys and sessions"
    return "is in nanobot's own folder" if path.is_relative_to(home) else ""


def _absolute(text: str) -> str:
    path = text.strip()
    if not path.startswith("/") or "\0" in path or ".." in path.split("/"):
        example = "Write it from the root, such as /home/ada/notes or ${HOME}/notes."
        raise Unfit("must be an absolute path", example)
    return path.rstrip("/") or "/"


AbsolutePath = Annotated[str, AfterValidator(_absolute)]
