"""What every part of a nanobot stands on: its home, its time, its channels, and the way between."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from nanobot.agent.commands import ServedModels
from nanobot.agent.limits import BudgetedProvider, DayBudget, DayLimit
from nanobot.agent.notifier import Courier
from nanobot.agent.session_queue import Lanes
from nanobot.app.channels import KnownChats, build_access, cli_channel, enabled_channels
from nanobot.app.delivery import split_for
from nanobot.app.home import Stores, build_stores
from nanobot.app.memory import build_scopes
from nanobot.app.model import build_counter, build_provider, build_transcriber, served_by
from nanobot.bus.queue import MessageBus
from nanobot.bus.sqlite_reports import JournalSpending, JournalUsage
from nanobot.channel import Channel
from nanobot.clock import Clock, SystemClock
from nanobot.config.settings import Settings
from nanobot.gateway.screen import Screen
from nanobot.memory.scopes import Scopes
from nanobot.providers.counter import TokenCounter
from nanobot.providers.metering import MeteredProvider
from nanobot.providers.port import Provider, Usage
from nanobot.security.access import Access
from nanobot.tasks import Background
from nanobot.tools.shell import Processes

if TYPE_CHECKING:
    from nanobot.providers.transcription import Transcriber
    from nanobot_cli import CliChannel


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
    used: JournalUsage
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
    courier = Courier(
        bus,
        screen,
        partial(split_for, outlets, stores.media),
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
        courier=courier,
        known=KnownChats(sessions.list_sessions, sessions.metadata_of, access, speaking_up),
        processes=Processes(clock),
    )


def build_models(base: Base, provider: Provider | None, learner: Provider | None) -> Models:
    """The models, within the day's budget; those given instead of the configured one."""
    settings, clock, database = base.settings, base.clock, base.stores.journal.database
    served = served_by(settings.model, clock, asks=provider is None)
    provider = provider or build_provider(settings.model, clock, base.rng)
    budget = DayBudget(
        DayLimit(settings.limits.tokens_per_day, settings.limits.warn_at),
        JournalSpending(database),
        clock,
        base.background,
        warn=base.courier.warn,
    )
    answering = BudgetedProvider(provider, budget)
    used = JournalUsage(database)

    def record(usage: Usage) -> None:
        used.learned(clock.now().date(), usage.prompt, usage.cached, usage.completion)

    learner = BudgetedProvider(learner, budget) if learner else answering
    counter = build_counter(settings.model, base.stores.state, base.background)
    transcriber = build_transcriber(settings.model.transcription, clock, base.rng)
    return Models(answering, MeteredProvider(learner, record), counter, used, transcriber, served)
