"""What the other program wrote, as values: the fields of its JSON, its secrets, its people. Pure.

Each field is asked for with its type, and one of another type counts as missing. Keys may be
written in camelCase or snake_case.

Its memory is shared by everyone who may talk to it; ours belongs to the owner, and every other
person has a memory of their own. So the owner has to be known: the one person whom a channel lets
in, if there is only one, or the one that `--owner` names. In doubt a conversation has no owner.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field

from nanobot.bus.events import TERMINAL
from nanobot.config.load import update_env_file

_HUMP = re.compile(r"_([a-z0-9])")


class NotJson(Exception):
    """The text is no JSON object; says why."""


class Fields:
    """One JSON object."""

    def __init__(self, value: object) -> None:
        self._value: Mapping[str, object] = value if isinstance(value, dict) else {}

    @classmethod
    def read(cls, content: bytes) -> Fields:
        """The object that `content` is. Raises `NotJson`."""
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
        """The value of `name` (in snake_case), None where there is none."""
        hump = _HUMP.sub(lambda match: match[1].upper(), name)
        return self._value.get(hump, self._value.get(name))

    def inner(self, *path: str) -> Fields:
        """The object at `path`; an empty one where there is none."""
        found = self
        for name in path:
            found = Fields(found.get(name))
        return found

    def text(self, name: str) -> str:
        """A text without white space around it; empty where there is none. Numbers are texts."""
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
        """The texts and whole numbers in a list."""
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
    "# Variables of the environment override this file.\n"
)


class Secrets:
    """Collects secrets for secrets.env; the same value is kept once. What they are called begins
    so that no variable of the environment, which goes before the file, is called the same."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}  # by value
        self.awaited: list[str] = []
        """Variables that the other configuration referred to, which are set somewhere else."""
        self.unfit: list[str] = []
        """What could not be taken, by the name that it would have had."""

    def put(self, name: str, value: str) -> str:
        """What stands in the configuration for a secret `value`; empty for none, and for one that
        goes on no line. A value that refers to variables itself stays as it is."""
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
        """The file; empty where there are none."""
        values = {name: value for value, name in self._names.items()}
        return update_env_file(_HEAD, values) if values else ""


OURS = ("telegram", "whatsapp")
"""Channels that both programs have; a terminal is everywhere."""

_UNIFIED = "unified"
"""In place of a channel: one conversation for all, where the other program was set up so."""
_LOOPBACK = ("", "127.0.0.1", "localhost", "::1")
_JID = re.compile(r"\+?([0-9]{5,20})(?::[0-9]+)?(?:@(?:s\.whatsapp\.net|c\.us))?", re.ASCII)
_TOPIC = re.compile(r":topic:([0-9]+)\Z")
_ITS_OWN = re.compile(r"(?:heartbeat|dream|cron|system|subagent)(?::.*)?", re.DOTALL)
_ID = {
    "telegram": re.compile(r"[0-9]{1,20}", re.ASCII),
    "whatsapp": re.compile(r"[0-9]{5,20}|[0-9]{1,20}@lid", re.ASCII),
}


class People(Struct, frozen=True):
    """Who may talk, by channel, and who of them is the owner. `unclear` are entries of the other
    program's lists that name nobody here; `mine` are channels on which only the owner talked."""

    allowed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    owners: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unclear: tuple[str, ...] = ()
    mine: frozenset[str] = frozenset((TERMINAL,))

    def is_owner(self, channel: str, sender_id: str) -> bool:
        return sender_id in self.owners.get(channel, ())


def people_of(config: Fields, pairing: Fields, chosen: Sequence[str]) -> People:
    """Who is in the lists of the configuration and of its pairing; `chosen` are the owner's
    accounts (`telegram:123`)."""
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
    owners = _parse_owners(chosen) if chosen else _only_people(allowed, unclear)
    return People(allowed, owners, tuple(unclear), _channels_of_owner(config, allowed, owners))


def _only_people(
    allowed: Mapping[str, tuple[str, ...]], unclear: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Return the one person whom a channel lets in, by channel. An entry that is unclear may be
    somebody else."""
    doubtful = {entry.partition(":")[0] for entry in unclear}
    alone = {name: ids for name, ids in allowed.items() if len(ids) == 1 and ids != ("*",)}
    return {name: ids for name, ids in alone.items() if name not in doubtful}


def _channels_of_owner(
    config: Fields, allowed: Mapping[str, Sequence[str]], owners: Mapping[str, Sequence[str]]
) -> frozenset[str]:
    """Return the channels on which nobody but the owner could talk."""
    mine = {name for name, ids in allowed.items() if ids and set(ids) <= {*owners.get(name, ())}}
    channels = dict(config.inner("channels").objects())
    hosts = {"api": config.inner("api"), "websocket": channels.get("websocket", Fields({}))}
    mine |= {name for name, server in hosts.items() if server.text("host") in _LOOPBACK}
    if all(name in mine for name, channel in channels.items() if channel.get("enabled") is True):
        mine.add(_UNIFIED)
    return frozenset(mine | {TERMINAL, "sdk"})


def id_of(channel: str, entry: str) -> str:
    """An id of ours; empty for what names no person, such as a user name that can change hands."""
    if entry == "*" or channel not in OURS:
        return entry
    if channel == "telegram":
        bare = entry.partition("|")[0]
    else:
        bare = _bare_jid(entry.replace("@lid.whatsapp.net", "@lid").replace(" ", ""))
    return bare if _ID[channel].fullmatch(bare) else ""


PROGRAMS = "programs"
"""In place of the channel `api`: names that its clients chose must not meet those of keys here."""


def key_of(theirs: str) -> str:
    """The key of a conversation here; empty for those that the other program has with itself."""
    if _ITS_OWN.fullmatch(theirs) or not theirs:
        return ""
    channel, colon, chat = theirs.partition(":")
    if not colon:
        return f"{TERMINAL}:{theirs}"
    if channel == "telegram":
        chat = _TOPIC.sub(lambda match: f":{match[1]}", chat)
        return f"{channel}:{chat}"
    if channel == "whatsapp":
        return f"{channel}:{_bare_jid(chat)}"
    return f"{PROGRAMS}:{chat}" if channel == "api" else theirs


def is_group(key: str) -> bool:
    """Whether a conversation with this key (of ours) is a group's, as far as the key tells."""
    channel, _, chat = key.partition(":")
    return (channel == "telegram" and chat.startswith("-")) or chat.endswith("@g.us")


def _bare_jid(jid: str) -> str:
    match = _JID.fullmatch(jid)
    return match[1] if match else jid


def _parse_owners(accounts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    owners: dict[str, tuple[str, ...]] = {}
    for account in accounts:
        channel, _, id = account.partition(":")
        owners[channel] = (*owners.get(channel, ()), id_of(channel, id) or id)
    return owners
