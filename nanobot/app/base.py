"""What every part of a nanobot stands on: its home, its time, its channels, and the way between."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from nanobot.agent.commands import ServedModels
from nanobot.agent.limits import BudgetedProvider, DayBudget, DayLimit
from nanobot.agent.notifier import Courier, MessageSplitter
from nanobot.agent.session_queue import Lanes
from nanobot.app.home import Stores, build_stores
from nanobot.app.memory import build_scopes
from nanobot.app.model import build_counter, build_provider, build_transcriber, served_by
from nanobot.bus.journal import Usage as TokenUsage
from nanobot.bus.queue import MessageBus
from nanobot.channel import Channel, Chat, MenuEntry, Sender
from nanobot.clock import Clock, SystemClock
from nanobot.commands import CommandRegistry
from nanobot.config.settings import Settings
from nanobot.errors import ConfigError
from nanobot.gateway.host import Screen
from nanobot.gateway.webserver import WebServer
from nanobot.memory.scopes import Scopes, chat_of
from nanobot.providers.counter import MeteredProvider, TokenCounter
from nanobot.providers.port import Provider, Usage
from nanobot.security.access import Access, AccessRules
from nanobot.session.catalogue import SessionInfo
from nanobot.session.records import JsonValue
from nanobot.tasks import Background
from nanobot.tools.shell import Processes

if TYPE_CHECKING:
    from nanobot.providers.transcription import Transcriber
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


@dataclass(frozen=True, slots=True)
class Base:
    """`outlets` are the channels by name, the terminal (`cli`) among them; `known` are the chats
    in which the agent can speak up at any time, `processes` the commands that run. `unhurried` owns
    what is finished before a command that hosts the gateway ends: mostly what memory is given."""

    settings: Settings
    clock: Clock
    rng: Random
    stores: Stores
    background: Background
    unhurried: Background
    bus: MessageBus
    lanes: Lanes
    cli: CliChannel
    outlets: Mapping[str, Channel]
    access: Access
    scopes: Scopes
    screen: Screen
    splitter: MessageSplitter
    courier: Courier
    known: KnownChats
    processes: Processes


@dataclass(frozen=True, slots=True)
class Models:
    """Who answers, who condenses conversations and dreams (`learner`), and what that takes.
    `transcriber` listens to voice messages, if there is a model for that. `served` names the models
    that a conversation can choose; None where there is only the default one."""

    provider: Provider
    learner: Provider
    counter: TokenCounter
    transcriber: Transcriber | None
    served: ServedModels | None

    @property
    def closables(self) -> tuple[Transcriber, ...]:
        """What holds connections, beside the provider."""
        return (self.transcriber,) if self.transcriber else ()


def build_base(
    settings: Settings, clock: Clock | None, channels: Sequence[Channel], *, admit_everyone: bool
) -> Base:
    """Put it together. Raises `NanobotError` where the home or a channel cannot be used."""
    clock = clock or SystemClock(settings.agent.timezone)
    stores = build_stores(settings.home, clock)
    cli = cli_channel(clock)
    outlets = {c.name: c for c in (cli, *channels, *enabled_channels(settings))}
    access = build_access(settings, clock, tuple(outlets) if admit_everyone else (cli.name,))
    scopes = build_scopes(settings, access)
    screen, bus, sessions = Screen(outlets), MessageBus(stores.journal), stores.sessions
    speaking_up = [name for name in outlets if name != cli.name]  # a terminal has to ask
    splitter = MessageSplitter(outlets, stores.media)
    courier = Courier(
        bus,
        screen,
        splitter,
        sessions.list_sessions,
        lambda key: scopes.of_session(key, sessions.metadata_of(key)),
        speaking_up,
        partial(secrets.token_hex, 8),
        terminals=(cli.name,),
    )
    return Base(
        settings=settings,
        clock=clock,
        rng=Random(),  # noqa: S311 - spreads retries, guards nothing
        stores=stores,
        background=Background(),
        unhurried=Background(),
        bus=bus,
        lanes=Lanes(settings.agent.max_concurrent_turns),
        cli=cli,
        outlets=outlets,
        access=access,
        scopes=scopes,
        screen=screen,
        splitter=splitter,
        courier=courier,
        known=KnownChats(sessions.list_sessions, sessions.metadata_of, access, speaking_up),
        processes=Processes(clock),
    )


def build_models(base: Base, provider: Provider | None, learner: Provider | None) -> Models:
    """The models, within the day's budget; those given instead of the configured one."""
    settings, clock, reports = base.settings, base.clock, base.stores.journal.reports
    served = served_by(settings.model, clock, asks=provider is None)
    provider = provider or build_provider(settings.model, clock, base.rng)
    budget = DayBudget(
        DayLimit(settings.limits.tokens_per_day, settings.limits.warn_at),
        reports,
        clock,
        base.background,
        warn=base.courier.warn,
    )
    answering = BudgetedProvider(provider, budget)

    def record(usage: Usage) -> None:
        used = TokenUsage(1, usage.prompt, usage.cached, usage.completion)
        reports.add_learning(clock.now().date(), used)

    learner = BudgetedProvider(learner, budget) if learner else answering
    counter = build_counter(settings.model, base.stores.state, base.background)
    transcriber = build_transcriber(settings.model.transcription, clock, base.rng)
    return Models(answering, MeteredProvider(learner, record), counter, transcriber, served)
