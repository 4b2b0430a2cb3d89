"""The channels: which there are, who may talk on them, and what each gets to know of the core."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nanobot.channel import Channel, Chat, MenuEntry, Sender
from nanobot.clock import Clock
from nanobot.commands import CommandRegistry
from nanobot.config.settings import Settings
from nanobot.errors import ConfigError
from nanobot.gateway.webserver import WebServer
from nanobot.memory.scopes import chat_of
from nanobot.security.access import Access, AccessRules
from nanobot.session.catalogue import SessionInfo
from nanobot.session.records import JsonValue

if TYPE_CHECKING:
    from nanobot_cli import CliChannel


def cli_channel(clock: Clock) -> CliChannel:
    """The terminal, which is always there."""
    from nanobot_cli import CliChannel

    return CliChannel(clock)


def enabled_channels(settings: Settings) -> Iterator[Channel]:
    """The configured channels, found by entry point; only those enabled are imported."""
    wanted = {name for name, channel in settings.channels.items() if channel.enabled}
    if not wanted:
        return
    from importlib.metadata import entry_points

    found = {point.name: point for point in entry_points(group="nanobot.channels")}
    for name in sorted(wanted):
        if name not in found:
            raise ConfigError(
                "no installed package provides this channel",
                key=f"channels.{name}",
                hint=f"Install the package that does, or set channels.{name}.enabled to false.",
            )
        yield found[name].load()(settings.channels[name].options)


def build_access(settings: Settings, clock: Clock, everyone: Collection[str] = ()) -> Access:
    """Who may talk. On the channels in `everyone` whoever writes may, and is the owner."""
    rules = {
        name: AccessRules(
            frozenset(channel.allow_from),
            channel.groups,
            {group: frozenset(people) for group, people in channel.allow_groups.items()},
        )
        for name, channel in settings.channels.items()
    }
    rules |= {name: AccessRules(everyone=True) for name in everyone}
    owners = {**dict.fromkeys(everyone, ("*",)), **settings.owner}
    return Access(settings.home / "state" / "access.json", rules, owners, clock)


def build_web(settings: Settings) -> WebServer:
    """The HTTP server, which listens once a channel has a webhook."""
    http = settings.http
    return WebServer(http.host, http.port, public_hosts=http.public_hosts)


def menu_of(commands: CommandRegistry) -> Sequence[MenuEntry]:
    """The slash commands, for the menus of platforms."""
    return [MenuEntry(c.name, c.summary, c.allowed == "owner") for c in commands]


@dataclass(frozen=True, slots=True)
class KnownChats:
    """The chats that the agent has talked in, on the channels where it can speak up at any time.

    `sessions` lists conversations, the one used last first; `metadata_of` gives what is known of
    one.
    """

    sessions: Callable[[], Iterable[SessionInfo]]
    metadata_of: Callable[[str], Mapping[str, JsonValue]]
    access: Access
    channels: Collection[str]

    def chats(self) -> Sequence[tuple[str, str]]:
        """Their addresses and titles. Blocks."""
        names = {f"{known.channel}:{known.id}": known.name for known in self.access.approved()}
        keys = (info.key for info in self.sessions())
        return [
            (key, self._title(key, names)) for key in keys if key.partition(":")[0] in self.channels
        ]

    def may_reach(self, address: str) -> bool:
        """Whether the people in this chat may talk to the agent now. Blocks."""
        channel, metadata = address.partition(":")[0], self.metadata_of(address)
        chat_id = chat_of(address, metadata)
        if metadata.get("group") is True:
            return self.access.knows_group(channel, chat_id)
        person = metadata.get("sender")
        sender = Sender(person if isinstance(person, str) else chat_id)
        return self.access.permits(channel, sender, Chat(chat_id))

    def _title(self, address: str, names: Mapping[str, str]) -> str:
        """What a person calls themselves, or the name of who was let in; topics have their
        group's."""
        metadata = self.metadata_of(address)
        name, channel = metadata.get("name"), address.partition(":")[0]
        chat = f"{channel}:{chat_of(address, metadata)}"
        return name if isinstance(name, str) else names.get(chat, "")
