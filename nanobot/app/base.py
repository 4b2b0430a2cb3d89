"""The parts that all others need: the home and its stores, the models, the channels and their
access rules."""

from __future__ import annotations

import asyncio
import math
import os
import socket
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Protocol

from loguru import logger
from msgspec import ValidationError, convert
from msgspec.structs import asdict

import nanobot
from nanobot.agent.media import MediaStore
from nanobot.agent.notifier import KnownChats, MessageSplitter, Notifier
from nanobot.agent.session_queue import Lanes, Screen
from nanobot.app.voice import Voice, endpoint_of
from nanobot.bus.events import API, PULLED, InboundMessage
from nanobot.bus.queue import MessageBus
from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.bus.state import StateStore
from nanobot.channel import Channel
from nanobot.clock import Clock, SystemClock
from nanobot.commands import CommandRegistry
from nanobot.config.load import CONFIG_FILE, SECRETS_FILE
from nanobot.config.model import ModelSettings
from nanobot.config.settings import Settings
from nanobot.config.values import plain_values, secrets_in
from nanobot.errors import ExtraMissing, NanobotError
from nanobot.gateway.lock import refuse_half_moved, refuse_half_restored
from nanobot.io import storage_errors
from nanobot.memory.documents import install_template
from nanobot.memory.scopes import Scopes
from nanobot.memory.search import Embedder
from nanobot.memory.search.vectors import LocalEmbedder, VectorWorker
from nanobot.providers.counter import (
    BudgetedProvider,
    DayBudget,
    DayLimit,
    Tiktoken,
    TokenCounter,
)
from nanobot.providers.dialect import Dialect, Dialects
from nanobot.providers.port import Provider, RequestSettings
from nanobot.providers.retry import (
    Model,
    Prices,
    RetryingProvider,
    RetryPolicy,
    RoutingProvider,
    ServedModels,
)
from nanobot.security.access import Access, AccessRules
from nanobot.security.paths import Root
from nanobot.security.redaction import Redactor
from nanobot.session.catalogue import SessionCatalogue
from nanobot.session.manager import SessionManager
from nanobot.tasks import Background
from nanobot.tooling.registry import SpillFolder
from nanobot.tools.files import UndoLog
from nanobot.tools.shell.processes import Processes
from nanobot_cli.channel import CliChannel
from nanobot_web.channel import WebChannel
from nanobot_web.settings import WebSettings

if TYPE_CHECKING:
    from nanobot.team.journal import PostgresJournal

GATHER_SECONDS = 0.02
"""Seconds that a turn's lines wait for other turns' lines. The journal already has them."""


_SHARED_SECONDS = 2.0
"""Seconds for which today's usage by other workers may be unknown."""


class Closable(Protocol):
    """A part with connections to release."""

    async def close(self) -> None: ...


class Stores:
    """The stores on disk except memory: the folders of the home and their contents. In a team,
    people's data is in the shared folder, and `home` has a worker's caches, log and socket. Raises
    `StorageError`."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        home, shared = settings.home, settings.data_folder
        make_home(home)
        self.journal = build_journal(settings, home / "state", clock)
        if shared != home:
            make_home(shared)
        self.home, self.state = home, home / "state"
        self.shared, self.shared_state = shared, shared / "state"
        self.workspace = Root(shared / "workspace")
        try:
            if shared == home:  # `nanobot team init` makes a team's once
                install_template(self.workspace.path)
        except NanobotError as error:  # chats work without it
            logger.error("the workspace cannot be set up: {} {}", error, error.hint)
        self.catalogue = SessionCatalogue(shared / "sessions", clock, self.state / "catalogue.db")
        self.sessions = SessionManager(self.catalogue, clock, gather=GATHER_SECONDS)
        self.media = MediaStore(shared / "media")
        self.spill = SpillFolder(shared / "spill")
        self.undo = UndoLog(self.shared_state / "undo", self.workspace)


def build_journal(settings: Settings, state: Path, clock: Clock) -> SqliteJournal | PostgresJournal:
    """Return the journal in a file of the home or in the team's database. Raises `NanobotError` if
    a move from one to the other is unfinished, or database and folder are of different teams."""
    in_team = bool(settings.team.database.get_secret_value())
    refuse_half_moved(state, in_team=in_team)
    if not in_team:
        return SqliteJournal(state / "journal.db", clock)
    try:
        from nanobot.team.folder import check_mounts, expect_together
        from nanobot.team.journal import PostgresJournal
        from nanobot.team.membership import end_process
        from nanobot.team.postgres import Database
    except ModuleNotFoundError as error:
        if error.name != "psycopg":
            raise
        raise ExtraMissing("a team", "team") from None
    dsn = settings.team.database.get_secret_value()
    database = Database(dsn, lambda: end_process("other workers are taking over its work"))
    expect_together(database.address, settings.data_folder)
    check_mounts(settings.data_folder)
    # `Base` replaces `scope_of` once it knows the people.
    return PostgresJournal(database, clock, lambda message: message.origin.scope)


def make_home(home: Path) -> list[Path]:
    """Make the home and its folders, readable only by their owner, and return the files with keys
    that other users could read until now. Raises `StorageError`, also after an interrupted restore,
    whose contents would otherwise mix with the new folders."""
    refuse_half_restored(home)
    for folder in (home, home / "state", home / "sessions", home / "media", home / "logs"):
        Root(folder, name="home").create()
    with storage_errors(home):
        if home.stat().st_mode & 0o777 != 0o700:  # it may be handmade
            home.chmod(0o700)
    exposed = []
    for path in (home / SECRETS_FILE, home / CONFIG_FILE):
        with suppress(OSError):  # a read-only disk: loading the file warns at each start
            status = path.stat()
            if status.st_uid == os.geteuid() and status.st_mode & 0o077:
                path.chmod(status.st_mode & 0o700)
                exposed.append(path)
    return exposed


def build_provider(
    settings: Settings, clock: Clock, rng: Random, dialects: Dialects | None = None
) -> Provider:
    """Return the configured models with retries: the main one with its fallbacks, and the named
    ones, which fall back to those. `dialects` keeps the requirements of their servers."""
    model = settings.model
    main = [_build_model(one, dialects) for one in model.chain]
    policy = RetryPolicy(deadline=model.retry_seconds)
    provider: Provider = RetryingProvider(main, policy, clock, rng)
    if not settings.models:
        return provider
    named = {
        name: RetryingProvider(
            [_build_model(one.fill_from(model), dialects), *main], policy, clock, rng
        )
        for name, one in settings.models.items()
    }
    return RoutingProvider(provider, named, settings.uses)


def _build_model(model: ModelSettings, dialects: Dialects | None) -> Model:
    prices = model.prices
    costs = Prices(prices.input, prices.cached_input, prices.output, prices.cache_write)
    return Model(model.name or model.provider, build_adapter(model, dialects), costs)


_READING_SHARE = 5
"""A slow machine reads a long prompt for minutes, in which most servers send nothing."""


def build_adapter(model: ModelSettings, dialects: Dialects | None = None) -> Provider:
    """Return the adapter of one model, for its server's API."""
    if model.provider == "offline":
        from nanobot.providers.offline.model import OfflineModel

        return OfflineModel()
    build: Callable[..., Provider]
    if model.api == "messages":
        from nanobot.providers.anthropic import AnthropicProvider

        build = AnthropicProvider
    else:
        from nanobot.providers.openai import OpenAIProvider

        build = partial(OpenAIProvider, dialects=dialects)
    return build(
        model=model.name,
        base_url=model.base_url,
        api_key=model.api_key.get_secret_value(),
        max_tokens=model.max_completion_tokens,
        stall_seconds=model.timeout_seconds,
        first_token_seconds=_READING_SHARE * model.timeout_seconds,
        settings=RequestSettings(
            model.reasoning_effort,
            model.temperature,
            model.extra_body,
            plain_values(model.headers),
        ),
    )


def build_embedder(settings: Settings, clock: Clock, worker: VectorWorker) -> Embedder | None:
    """Return the model for search by meaning, in `worker` for the local one, or None without a
    setting."""
    chosen = settings.memory.embeddings
    if chosen.local:
        return LocalEmbedder(worker)
    if not chosen.model:
        return None
    from nanobot.providers.embeddings import OpenAIEmbedder

    return OpenAIEmbedder(endpoint_of(chosen, "memory.embeddings"), clock)


def secret_values(settings: Settings) -> Iterator[str]:
    """Yield every secret value in the settings, also of channels, for redaction."""
    model = settings.model
    for path, secret in secrets_in(settings):
        value = secret.get_secret_value()
        if path[-1] == "api_key":
            from nanobot.providers.endpoint import is_secret_key  # not for the built-in model

            if not is_secret_key(value, model.base_url, model.name):
                continue
        yield value


def about(settings: Settings) -> Mapping[str, str]:
    """Return the constant part of the status."""
    model = settings.model
    return {
        "version": nanobot.__version__,
        "home": str(settings.home),
        **({"shared": str(settings.data_folder)} if settings.team.shared else {}),
        "provider": model.provider,
        "model": settings.chat_model,
    }


def load_channels(settings: Settings) -> Iterator[Channel]:
    """Load the enabled implementations of `Channel` by entry point, and import no others."""
    wanted = {name for name, channel in settings.channels.items() if channel.enabled}
    wanted.discard(WebChannel.name)
    if not wanted:
        return
    from nanobot.config.channels import adapters  # reads installed packages

    found = adapters()
    for name in sorted(wanted):
        yield found[name].load()(settings.channels[name].options)


def build_web(settings: Settings) -> WebChannel:
    """Return the page's channel, which always exists and sleeps until it is used."""
    chosen = settings.channels.get(WebChannel.name)
    if chosen is None:
        return WebChannel(enabled=False)
    assert isinstance(chosen.options, WebSettings)
    return WebChannel(chosen.options, enabled=chosen.enabled)


def build_access(
    settings: Settings, store: StateStore, clock: Clock, everyone: Collection[str] = ()
) -> Access:
    """Return the access rules. On the channels in `everyone`, all senders have access as the
    owner."""
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
    return Access(store, rules, owners, clock)


def build_scopes(settings: Settings, access: Access) -> Scopes:
    """Return the scopes of people. `access` knows the owner."""
    remembered = settings.memory
    return Scopes(access.is_owner_id, remembered.identities, remembered.groups_see_owner)


def scope_of(scopes: Scopes, sessions: SessionManager, message: InboundMessage) -> str:
    """Return the memory scope for a message. Reads the conversation's file if needed, which
    blocks."""
    key = message.session_key
    metadata = sessions.metadata_of(key) if message.session_override else {}
    return scopes.of_message(message, key, metadata)


def expect_own(scopes: Scopes, sessions: SessionManager, message: InboundMessage) -> None:
    """Raise `OthersConversation` for a message to a conversation of another scope. Reads the
    conversation's file, which blocks."""
    if message.content.strip() == "/stop":
        return  # harmless, and the scope of a first turn is only stored at its end
    key = message.session_key
    scopes.expect_own(message, key, sessions.metadata_of(key))


class Base:
    """The shared parts. `outlets` are the channels by name, including the terminal (`cli`).
    `worker` is the name of this worker, empty without a team. `awaited_background` has work that is
    finished before a command that hosts the gateway ends, mostly memory's. Without `has_channels`,
    the settings' channels are not loaded. Raises `NanobotError` if the home or a channel is
    unusable."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock | None,
        channels: Sequence[Channel],
        *,
        admit_everyone: bool,
        has_channels: bool = True,
    ) -> None:
        self.settings = settings
        self.clock = clock = clock or SystemClock(settings.agent.timezone)
        self.redactor = Redactor(secret_values(settings))
        self.rng = Random()  # noqa: S311 - spreads retries, guards nothing
        self.stores = stores = Stores(settings, clock)
        self.background, self.awaited_background = Background(), Background()
        self.cli = cli = CliChannel()
        enabled = load_channels(settings) if has_channels else ()
        self.outlets = {c.name: c for c in (cli, build_web(settings), *channels, *enabled)}
        everyone = tuple(self.outlets) if admit_everyone else (cli.name,)
        self.access = build_access(settings, stores.journal.state, clock, everyone)
        self.scopes = scopes = build_scopes(settings, self.access)
        self.worker = ""
        if not isinstance(stores.journal, SqliteJournal):
            self.worker = settings.team.name or socket.gethostname()
            stores.journal.scope_of = partial(scope_of, scopes, stores.sessions)
        self.commands = CommandRegistry(is_owner=scopes.is_owner)
        self.bus = MessageBus(stores.journal, clock=self.clock)
        self.lanes = Lanes(settings.agent.max_concurrent_turns)
        self.screen = Screen(self.outlets)
        self.splitter = MessageSplitter(self.outlets, stores.media)
        configured = [name for name, one in settings.channels.items() if one.enabled]
        self.reachable = sorted({*self.outlets, *configured} - {*PULLED, API})
        self.known_chats = KnownChats(stores.sessions, scopes, self.access, self.reachable, PULLED)
        self.notifier = Notifier(self.bus, self.splitter, self.known_chats, clock, self.background)
        self.processes = Processes(clock)


class Models:
    """The models, within the day's budget: `provider` answers, `learner` consolidates and dreams.
    The arguments of these names replace the configured model. `voice` transcribes and speaks, if
    set up. `served` lists the models that a conversation can choose, or is None if there is only
    the default."""

    def __init__(self, base: Base, provider: Provider | None, learner: Provider | None) -> None:
        settings, clock, journal = base.settings, base.clock, base.stores.journal
        chosen = settings.model
        self.served: ServedModels | None = None
        if provider is not None:
            self.served = ServedModels("", "")  # a replacement has no list
        elif chosen.provider != "offline":
            self.served = ServedModels(chosen.base_url, chosen.api_key.get_secret_value())
        self.dialects = Dialects(clock, journal.state)
        provider = provider or build_provider(settings, clock, base.rng, self.dialects)
        limits = settings.limits

        def budget_of(tokens: int, use: str = "") -> DayBudget:
            return DayBudget(
                DayLimit(tokens, use=use),
                journal,
                clock,
                base.background,
                warn=base.notifier.warn,
                # Other workers use the same budget.
                known_seconds=_SHARED_SECONDS if base.worker else math.inf,
            )

        budget = budget_of(limits.tokens_per_day)
        by_use = {use: budget_of(tokens, use) for use, tokens in asdict(limits.uses).items()}
        self.provider = BudgetedProvider(provider, budget, by_use)
        self.learner = BudgetedProvider(learner or provider, budget, by_use, learns=True)
        exact = None if chosen.provider == "offline" else Tiktoken(chosen.name)
        self.counter = TokenCounter(exact)
        self.voice = Voice(settings, clock)

    @property
    def closables(self) -> tuple[Closable, ...]:
        return (self.provider, *self.voice.closables)

    async def replace_dialects(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Operation `dialects.replace`: replace learned dialects with the results of a trial, by
        source (`learned`)."""
        try:
            learned = convert(arguments.get("learned"), dict[str, Dialect | None])
        except ValidationError as error:
            raise NanobotError(f"these are not dialects: {error}") from None
        await asyncio.to_thread(self.dialects.load)
        await self.dialects.replace(learned)
        return {}
