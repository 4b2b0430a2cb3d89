"""Types of configuration values besides text, numbers and choices: addresses, keys, counts,
durations, variables of programs, folders."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from nanobot.errors import ToolError
from nanobot.validation import Check, Fault, InvalidValue, KeyPath, SecretStr, address_parts

if TYPE_CHECKING:
    from nanobot.cron.schedule import Schedule


class PlainValue(SecretStr):
    """A value among secrets that is clearly not secret."""


def secrets_in(value: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, SecretStr]]:
    """Yield every secret in a validated value, including adapters' settings, each with its path.
    `path` is the place of the value."""
    if isinstance(value, SecretStr) and not isinstance(value, PlainValue):
        yield path, value
    inner: Iterable[tuple[str | int, object]] = ()
    if isinstance(value, Struct):
        inner = ((name, getattr(value, name)) for name in value.__struct_fields__)
    elif isinstance(value, Mapping):
        inner = ((str(key), item) for key, item in value.items())
    elif isinstance(value, tuple | list | set | frozenset):
        inner = enumerate(value)
    for step, item in inner:
        yield from secrets_in(item, (*path, step))


OFFICIAL_API = "https://api.openai.com/v1"
_MCP_URL = "https://mcp.example.org/mcp"


def check_address(url: str, example: str, keys: str) -> str:
    try:
        parts = address_parts(url, "http", "https")
    except InvalidValue as error:
        raise InvalidValue(str(error), f"Write it like {example}.") from None
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise InvalidValue(
            "must not contain a user name, '?', or '#'", f"Put the key into `{keys}`."
        )
    return url


def check_url(text: str) -> str:
    example = "https://llm.example.com/v1 or http://127.0.0.1:11434/v1"
    url = check_address(text.strip().rstrip("/"), example, "api_key")
    if url.endswith(("/chat/completions", "/completions", "/responses")):
        raise InvalidValue(
            "must not include an endpoint, such as /chat/completions",
            "Remove everything after /v1.",
        )
    return url


def check_proxy(secret: SecretStr) -> SecretStr:
    url = secret.get_secret_value().strip().rstrip("/")
    with suppress(InvalidValue):
        if not url or not any(address_parts(url, "http")[2:]):
            return SecretStr(url)
    raise InvalidValue("must be the URL of an HTTP proxy", "Write it like http://127.0.0.1:3128.")


def check_key(secret: SecretStr) -> SecretStr:
    key = secret.get_secret_value().strip()
    if not all("!" <= character <= "~" for character in key):
        raise InvalidValue(
            "contains a space, a line break, or a non-ASCII character",
            "Copy only the key, and paste it again.",
        )
    return SecretStr(key)


def check_host(text: str) -> str:
    from nanobot.security.egress.urls import parse_host  # rarely needed, as below

    try:
        return parse_host(text.strip())
    except (ValueError, ToolError):
        hint = "Write it like bot.example.org or 127.0.0.1, without http:// or a port."
        raise InvalidValue("must be a host name or an IP address", hint) from None


def check_rule(text: str) -> str:
    from nanobot.security.egress.connector import parse_exceptions

    rule = text.strip().lower()
    try:
        networks = parse_exceptions([rule]).networks
    except ValueError:
        message = "must be a host name, an IP address, or a network, optionally with a port"
        hint = "Write it like nas.lan, 127.0.0.1:8000, [::1]:8000 or 192.168.1.0/24."
        raise InvalidValue(message, hint) from None
    if any(network.prefixlen == 0 for network, _ in networks):
        hint = "List the hosts or networks that you need."
        raise InvalidValue("must not allow every address", hint)
    return rule


def check_domain(text: str) -> str:
    from nanobot.security.egress.connector import parse_domains

    try:
        return parse_domains([text])[0]
    except ValueError:
        hint = "Write it like example.org, which includes its subdomains."
        raise InvalidValue("is not a domain", hint) from None


def check_id(text: str) -> str:
    """Return the platform's id of a person or a group. Raise `InvalidValue`."""
    identity = text.strip()
    if not identity:
        raise InvalidValue("must not be empty")
    if identity.startswith("@") and ":" not in identity:
        raise InvalidValue(
            "must be an id, not a name",
            "Names can change hands. Use the numeric id, which `nanobot pair list` shows "
            "after the person has written to the bot.",
        )
    return identity


Url = Annotated[str, Check(check_url)]
ApiKey = Annotated[SecretStr, Check(check_key)]
Name = Annotated[str, Meta(min_length=1)]
PersonId = Annotated[str, Check(check_id)]
HostName = Annotated[str, Check(check_host)]
Count = Annotated[int, Meta(ge=1)]
Duration = Annotated[float, Meta(ge=0)]
Seconds = Annotated[float, Meta(gt=0)]
ServerUrl = Annotated[str, Check(lambda url: check_address(url.strip(), _MCP_URL, "headers"))]
ProxyUrl = Annotated[SecretStr, Check(check_proxy)]
Domain = Annotated[str, Check(check_domain)]
HostRule = Annotated[str, Check(check_rule)]


def is_official(base_url: str) -> bool:
    """Return True for an address of the official OpenAI API."""
    return urlsplit(base_url).hostname == urlsplit(OFFICIAL_API).hostname


def needs_key(base_url: str, api_key: SecretStr) -> bool:
    """Return True if the server requires a key and there is none."""
    return is_official(base_url) and not api_key.get_secret_value()


def missing_key(*key: str | int) -> Fault:
    """Return the fault for a missing key at `key`, relative to its section."""
    return Fault(
        key,
        "is required by the official OpenAI API",
        "Write `api_key: ${OPENAI_API_KEY}` and set that variable. For another server, set "
        "`base_url`.",
    )


_NAME = r"(?a)[A-Za-z_][A-Za-z0-9_]*"
_HEADER = r"(?a)[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}"
_SENSITIVE = r"(?i)key|token|secret|pass|auth|credential|cookie|pwd|pin\b"
_PLAIN = r"""(?x)
      [a-z]{1,12}                     # a word: production
    | [0-9]{1,6} | true | false
    | (?:~|\.{1,2})?/[^:@?\s]*(?::/[^:@?\s]*)*   # a path, or a list of them as in PATH
    | [A-Za-z_]{1,10}\.[Uu][Tt][Ff]-?8           # a locale: C.UTF-8
    | https?://[^@?\#\s]*             # an address without a key
    """
_RESERVED = frozenset({"LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT"})  # affect every program


def plain_values(values: Mapping[str, SecretStr]) -> dict[str, str]:
    """Return the bare values, to start the program or make the request with."""
    return {name: value.get_secret_value() for name, value in values.items()}


def check_variables(values: Mapping[str, SecretStr]) -> Mapping[str, SecretStr]:
    for name in values:
        if not re.fullmatch(_NAME, name):
            raise InvalidValue("must use variable names as keys", "Write it like `LANG: C`.")
        if name in _RESERVED:
            raise InvalidValue(f"cannot contain {name}, which affects every program", "Remove it.")
    return {name: plain_or_secret(name, value) for name, value in values.items()}


def plain_or_secret(name: str, value: SecretStr) -> SecretStr:
    """Return a value as secret unless it clearly is not. Secrets are redacted everywhere, so a
    folder or a word such as `production` must not be one."""
    bare = value.get_secret_value()
    return PlainValue(bare) if looks_plain(name, bare) else value


def looks_plain(name: str, value: str) -> bool:
    """Return True if the value of the variable `name` is clearly not secret."""
    return not re.search(_SENSITIVE, name) and re.fullmatch(_PLAIN, value) is not None


def check_headers(values: Mapping[str, SecretStr]) -> Mapping[str, SecretStr]:
    for name, value in plain_values(values).items():
        if not re.fullmatch(_HEADER, name) or not all(" " <= one <= "~" for one in value):
            example = "Write it like `Authorization: Bearer ${MY_TOKEN}`."
            raise InvalidValue("must be HTTP headers in ASCII, each on one line", example)
    return values


Variables = Annotated[Mapping[str, SecretStr], Check(check_variables)]
Headers = Annotated[Mapping[str, SecretStr], Check(check_headers)]


def parse_schedule(text: str) -> Schedule | None:
    """Return the schedule in `text`, which may be in words, or None."""
    from nanobot.cron.schedule import ScheduleError, parse  # rarely needed

    try:
        return parse(text)
    except ScheduleError:
        from nanobot.cron.words import parse_recurring  # rarely needed
    with suppress(ScheduleError):
        return parse_recurring(text)
    return None


def find_exposed_paths(key: str, paths: Iterable[str], home: Path) -> Iterator[Fault]:
    """Yield faults for absolute paths in `paths` that must not be visible to the agent's programs.

    Access to nanobot's own folder, or anything above it or in it, would defeat the sandbox: it
    holds keys, sessions and the control socket. The workspace is no exception, because a command
    could put a link there between the check and the use."""
    home = home.resolve()
    named = ((at, Path(text).resolve()) for at, text in enumerate(paths) if text.startswith("/"))
    for index, path in named:
        reason = ""
        if path in (Path("/proc"), Path("/dev"), Path("/sys"), Path("/run")):
            reason = "contains only the system's own files"
        elif home.is_relative_to(path):
            reason = "would give access to nanobot's own folder, with its keys and sessions"
        elif path.is_relative_to(home):
            reason = "is in nanobot's own folder"
        if reason:
            yield Fault((key, index), reason, "List only the folder that the program needs.")


def check_absolute(text: str) -> str:
    path = text.strip()
    if not path.startswith("/") or "\0" in path or ".." in path.split("/"):
        example = "Write the full path, such as /home/ada/notes or ${HOME}/notes."
        raise InvalidValue("must be an absolute path", example)
    return path.rstrip("/") or "/"


AbsolutePath = Annotated[str, Check(check_absolute)]
