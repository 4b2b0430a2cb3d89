"""Who is who: ids and conversations as the other program names them, and as we do. Pure.

Its memory is shared by everyone who may talk to it; ours belongs to the owner, and every other
person has a memory of their own. So the owner has to be known: the one person whom a channel lets
in, if there is only one, or the one that `--owner` names. In doubt a conversation has no owner.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nanobot.bus.events import TERMINAL
from nanobot.importing.foreign import Fields

OURS = ("telegram", "whatsapp")
"""Channels that both programs have; a terminal is everywhere."""

UNIFIED = "unified:default"
"""One conversation for all channels, where the other program was set up so."""

_LOOPBACK = ("", "127.0.0.1", "localhost", "::1")
_JID = re.compile(r"\+?([0-9]{5,20})(?::[0-9]+)?(?:@(?:s\.whatsapp\.net|c\.us))?", re.ASCII)
_TOPIC = re.compile(r":topic:([0-9]+)\Z")
_ITS_OWN = re.compile(r"(?:heartbeat|dream|cron|system|subagent)(?::.*)?", re.DOTALL)
_ID = {
    "telegram": re.compile(r"[0-9]{1,20}", re.ASCII),
    "whatsapp": re.compile(r"[0-9]{5,20}|[0-9]{1,20}@lid", re.ASCII),
}


@dataclass(frozen=True, slots=True)
class People:
    """Who may talk, by channel, and who of them is the owner. `unclear` are entries of the other
    program's lists that name nobody here; `mine` are channels on which only the owner talked."""

    allowed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    owners: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unclear: tuple[str, ...] = ()
    mine: frozenset[str] = frozenset((TERMINAL,))

    def is_owner(self, channel: str, sender_id: str) -> bool:
        """Whether a sender is the owner."""
        return sender_id in self.owners.get(channel, ())

    def is_private(self, key: str) -> bool:
        """Whether a conversation with this key (of ours) is one with the owner alone."""
        channel, _, chat = key.partition(":")
        return channel == TERMINAL or self.is_owner(channel, chat)


def people_of(config: Fields, pairing: Fields, chosen: Sequence[str]) -> People:
    """Who is in the lists of the configuration and of its pairing; `chosen` are the owner's
    accounts (`telegram:123`)."""
    allowed: dict[str, tuple[str, ...]] = {}
    unclear: list[str] = []
    channels = dict(config.inner("channels").objects())
    for name, channel in channels.items():
        listed = (*channel.texts("allow_from"), *pairing.inner("approved").texts(name))
        found = [id_of(name, entry) for entry in listed]
        unclear += [f"{name}: {entry}" for entry, id in zip(listed, found, strict=True) if not id]
        allowed[name] = tuple(dict.fromkeys(filter(None, found)))
    owners = _chosen(chosen)
    for name, ids in allowed.items():
        named = [entry for entry in unclear if entry.startswith(f"{name}: ")]
        if not chosen and not named and len(ids) == 1 and ids[0] != "*":
            owners[name] = ids
    mine = {name for name, ids in allowed.items() if ids and set(ids) <= {*owners.get(name, ())}}
    hosts = {"api": config.inner("api"), "websocket": channels.get("websocket", Fields({}))}
    mine |= {name for name, server in hosts.items() if server.text("host") in _LOOPBACK}
    if all(name in mine for name, channel in channels.items() if channel.get("enabled") is True):
        mine.add(UNIFIED.partition(":")[0])
    return People(allowed, owners, tuple(unclear), frozenset(mine | {TERMINAL, "sdk"}))


def id_of(channel: str, entry: str) -> str:
    """An id of ours; empty for what names no person, such as a user name that can change hands."""
    if entry == "*" or channel not in OURS:
        return entry
    if channel == "telegram":
        bare = entry.partition("|")[0]
    else:
        bare = _bare_jid(entry.replace("@lid.whatsapp.net", "@lid").replace(" ", ""))
    return bare if _ID[channel].fullmatch(bare) else ""


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
    return theirs


def is_group(key: str) -> bool:
    """Whether a conversation with this key (of ours) is a group's, as far as the key tells."""
    channel, _, chat = key.partition(":")
    return (channel == "telegram" and chat.startswith("-")) or chat.endswith("@g.us")


def _bare_jid(jid: str) -> str:
    match = _JID.fullmatch(jid)
    return match[1] if match else jid


def _chosen(accounts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    owners: dict[str, tuple[str, ...]] = {}
    for account in accounts:
        channel, _, id = account.partition(":")
        owners[channel] = (*owners.get(channel, ()), id_of(channel, id) or id)
    return owners
