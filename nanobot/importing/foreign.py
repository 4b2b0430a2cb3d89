"""Data of the other program as values: the fields of its JSON, its secrets, its people. Pure.

Each field is read with a type, and a value of another type counts as missing. Keys may be in
camelCase or snake_case.

Its memory is shared by everyone with access. Ours belongs to the owner, and every other person has
their own. So the owner must be known: the only person with access to a channel, or the one given by
`--owner`. In doubt a conversation has no owner."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field

from nanobot.bus.events import TERMINAL
from nanobot.config.load import update_env_file

_HUMP = re.compile(r"_([a-z0-9])")


class NotJson(Exception):
    """The text is no JSON object, with the reason."""


class Fields:
    """A JSON object."""

    def __init__(self, value: object) -> None:
        self._value: Mapping[str, object] = value if isinstance(value, dict) else {}

    @classmethod
    def read(cls, content: bytes) -> Fields:
        """Parse a JSON object. Raise `NotJson`."""
        try:
            value = json.loads(content.decode("utf-8-sig"))
        except UnicodeDecodeError:
            raise NotJson("it is not UTF-8 text") from None
        except RecursionError:
            raise NotJson("it is nested too deeply") from None
        except ValueError as error:
            raise NotJson(f"it is not JSON ({error})") from None
        if not isinstance(value, dict):
            raise NotJson("it is not a JSON object")
        return cls(value)

    def __bool__(self) -> bool:
        return bool(self._value)

    def get(self, name: str) -> object:
        """Return the value of `name` (in snake_case), or None."""
        hump = _HUMP.sub(lambda match: match[1].upper(), name)
        return self._value.get(hump, self._value.get(name))

    def inner(self, *path: str) -> Fields:
        """Return the object at `path`, or an empty one."""
        found = self
        for name in path:
            found = Fields(found.get(name))
        return found

    def text(self, name: str) -> str:
        """Return a stripped text, or an empty one. Numbers are texts."""
        value = self.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        return value.strip() if isinstance(value, str) else ""

    def number(self, name: str) -> int | None:
        value = self.get(name)
        if isinstance(value, float) and value.is_integer():
            return int(value)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def flag(self, name: str, *, otherwise: bool) -> bool:
        value = self.get(name)
        return value if isinstance(value, bool) else otherwise

    def texts(self, name: str) -> tuple[str, ...]:
        """Return the texts and whole numbers in a list."""
        items = self.items(name)
        kept = (i for i in items if isinstance(i, str | int) and not isinstance(i, bool))
        return tuple(text for item in kept if (text := str(item).strip()))

    def items(self, name: str) -> list[object]:
        value = self.get(name)
        return value if isinstance(value, list) else []

    def objects(self) -> Iterator[tuple[str, Fields]]:
        for name, value in self._value.items():
            if isinstance(value, dict):
                yield name, Fields(value)


_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_NO_NAME = re.compile(r"[^A-Z0-9]+")
_HEAD = (
    "# Secrets for ${NAME} in config.yaml, imported by `nanobot import`.\n"
    "# Environment variables override this file.\n"
)


class Secrets:
    """Secrets for secrets.env, each value once. Their names have a prefix, so that no variable of
    the environment, which would override the file, has the same name."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}  # by value
        self.awaited: list[str] = []
        """Variables in the other configuration that are set outside it."""
        self.unfit: list[str] = []
        """Names of the secrets that could not be imported."""

    def put(self, name: str, value: str) -> str:
        """Return the reference to a secret `value` for the configuration, empty without one or if
        it does not fit on a line. A value that refers to variables stays unchanged."""
        name = f"IMPORTED_{_NO_NAME.sub('_', name.upper()).strip('_')}"
        if not value:
            return ""
        if not value.isprintable():
            self.unfit.append(name)
            return ""
        if names := _REFERENCE.findall(value):
            self.awaited += [name for name in names if name not in self.awaited]
            return value
        if value not in self._names:
            is_used = name in self._names.values()
            self._names[value] = f"{name}__{len(self._names)}" if is_used else name
        return f"${{{self._names[value]}}}"

    def as_text(self) -> str:
        """Return the file, empty without secrets."""
        values = {name: value for value, name in self._names.items()}
        return update_env_file(_HEAD, values) if values else ""


OURS = ("telegram", "whatsapp")
"""Channels of both programs, besides the terminal."""

_UNIFIED = "unified"  # replaces a channel, if the other program used one conversation for all
_LOOPBACK = ("", "127.0.0.1", "localhost", "::1")
_JID = re.compile(r"\+?([0-9]{5,20})(?::[0-9]+)?(?:@(?:s\.whatsapp\.net|c\.us))?", re.ASCII)
_TOPIC = re.compile(r":topic:([0-9]+)\Z")
_ITS_OWN = re.compile(r"(?:heartbeat|dream|cron|system|subagent)(?::.*)?", re.DOTALL)
_ID = {
    "telegram": re.compile(r"[0-9]{1,20}", re.ASCII),
    "whatsapp": re.compile(r"[0-9]{5,20}|[0-9]{1,20}@lid", re.ASCII),
}


class People(Struct, frozen=True):
    """People with access by channel, and the owners among them. `unclear` are entries of the other
    program's lists that match no person here. `mine` are channels that only the owner used."""

    allowed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    owners: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unclear: tuple[str, ...] = ()
    mine: frozenset[str] = frozenset((TERMINAL,))

    def is_owner(self, channel: str, sender_id: str) -> bool:
        return sender_id in self.owners.get(channel, ())


def people_of(config: Fields, pairing: Fields, chosen: Sequence[str]) -> People:
    """Return the people in the lists of the configuration and of its pairing. `chosen` are the
    owner's accounts (`telegram:123`)."""
    approved = pairing.inner("approved")
    listed = {
        name: (*channel.texts("allow_from"), *approved.texts(name))
        for name, channel in config.inner("channels").objects()
    }
    allowed, unclear = dict[str, tuple[str, ...]](), list[str]()
    for name, entries in listed.items():
        ids = {entry: id_of(name, entry) for entry in entries}
        allowed[name] = tuple(dict.fromkeys(filter(None, ids.values())))
        unclear += [f"{name}: {entry}" for entry, id in ids.items() if not id]
    owners = {} if chosen else find_only_people(allowed, unclear)
    for account in chosen:
        where, _, id = account.partition(":")
        owners[where] = (*owners.get(where, ()), id_of(where, id) or id)
    return People(allowed, owners, tuple(unclear), find_owner_channels(config, allowed, owners))


def find_only_people(
    allowed: Mapping[str, tuple[str, ...]], unclear: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Return the only person with access, by channel. An unclear entry may be another person."""
    doubtful = {entry.partition(":")[0] for entry in unclear}
    alone = {name: ids for name, ids in allowed.items() if len(ids) == 1 and ids != ("*",)}
    return {name: ids for name, ids in alone.items() if name not in doubtful}


def find_owner_channels(
    config: Fields, allowed: Mapping[str, Sequence[str]], owners: Mapping[str, Sequence[str]]
) -> frozenset[str]:
    """Return the channels that only the owner could use."""
    mine = {name for name, ids in allowed.items() if ids and set(ids) <= {*owners.get(name, ())}}
    channels = dict(config.inner("channels").objects())
    hosts = {"api": config.inner("api"), "websocket": channels.get("websocket", Fields({}))}
    mine |= {name for name, server in hosts.items() if server.text("host") in _LOOPBACK}
    if all(name in mine for name, channel in channels.items() if channel.get("enabled") is True):
        mine.add(_UNIFIED)
    return frozenset(mine | {TERMINAL, "sdk"})


def id_of(channel: str, entry: str) -> str:
    """Return our id, or an empty text if the entry identifies no person, such as a user name that
    can change hands."""
    if entry == "*" or channel not in OURS:
        return entry
    if channel == "telegram":
        bare = entry.partition("|")[0]
    else:
        bare = strip_jid(entry.replace("@lid.whatsapp.net", "@lid").replace(" ", ""))
    return bare if _ID[channel].fullmatch(bare) else ""


PROGRAMS = "programs"
"""Replaces the channel `api`, because names that its clients chose must not match our
keys' names."""


def key_of(theirs: str) -> str:
    """Return our key of a conversation, or an empty text for the other program's internal ones."""
    if _ITS_OWN.fullmatch(theirs) or not theirs:
        return ""
    channel, colon, chat = theirs.partition(":")
    if not colon:
        return f"{TERMINAL}:{theirs}"
    if channel == "telegram":
        chat = _TOPIC.sub(lambda match: f":{match[1]}", chat)
        return f"{channel}:{chat}"
    if channel == "whatsapp":
        return f"{channel}:{strip_jid(chat)}"
    return f"{PROGRAMS}:{chat}" if channel == "api" else theirs


def is_group(key: str) -> bool:
    """Return True if our key is visibly a group's."""
    channel, _, chat = key.partition(":")
    return (channel == "telegram" and chat.startswith("-")) or chat.endswith("@g.us")


def strip_jid(jid: str) -> str:
    match = _JID.fullmatch(jid)
    return match[1] if match else jid
