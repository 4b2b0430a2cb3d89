"""The settings: every key, its type, default, limits and meaning. Frozen once loaded.

These classes own that knowledge; the table in docs/configuration.md, the JSON Schema and the checks
are made from them. Models and tools have modules of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import time, timedelta
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, field
from msgspec.structs import FieldInfo, asdict, replace

from nanobot.config.channels import ChannelSettings
from nanobot.config.model import (
    EmbeddingSettings,
    ModelSettings,
    NamedModel,
    UseSettings,
)
from nanobot.config.tools import McpSettings, ToolSettings
from nanobot.config.values import (
    ApiKey,
    Count,
    Duration,
    HostName,
    Name,
    missing_key,
    parse_schedule,
)
from nanobot.errors import NanobotError
from nanobot.text import expanduser
from nanobot.validation import (
    Check,
    Checked,
    Fault,
    InvalidValue,
    SecretStr,
    fields_of,
    nearest,
    suggestion,
)

Port = Annotated[int, Meta(ge=1, le=65_535)]
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_ELSEWHERE = "Name a folder elsewhere, best on another disk."
_SHOWN = "would show the agent all secrets"
_NAME_IT = "Write it under `models`, with a name."
_ONE_TIME_ZONE = "Write one such as Europe/Berlin, the same for every worker: jobs go by it."
WholeFrom0 = Annotated[int, Meta(ge=0)]


def _known_zone(name: str) -> str:
    from zoneinfo import available_timezones  # only where one is set

    from nanobot.clock import find_zone

    name = name.strip()
    if not name or find_zone(name):
        return name
    near = nearest(name, sorted(available_timezones()))
    hint = f"Did you mean '{near}'?" if near else "Write it like Europe/Berlin."
    raise InvalidValue("is not the name of a time zone", hint)


class AgentSettings(Checked, frozen=True):
    """How the agent works."""

    max_iterations: Count = 50
    """Steps (model calls) that one turn may take before it must answer."""
    max_concurrent_turns: Count = 64
    """Turns that run at the same time, over all sessions."""
    on_busy: Literal["steer", "queue", "interrupt"] = "steer"
    """What a message does that arrives during a turn: `steer` gives it to the model at its next
    step, `queue` lets it wait, `interrupt` stops the turn for it."""
    timezone: Annotated[str, Check(_known_zone)] = ""
    """The person's time zone, such as `Europe/Berlin`; empty for the system's. Required in a
    team."""
    shutdown_grace_seconds: Duration = 20.0
    """Seconds that running turns and sends get to finish when nanobot stops. A stop takes ten
    seconds more at most."""


def _whole_keys(people: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
    keys = [key for person in people for key in person]
    example = "Write it like [[telegram:12345, whatsapp:4915112345678]]."
    for key in keys:
        channel, _, account = key.partition(":")
        if not channel.strip() or not account.strip():
            raise InvalidValue("must hold accounts written as channel:id", example)
    if any(len(person) < 2 for person in people):
        raise InvalidValue("must give each person at least two accounts", example)
    if len(set(keys)) < len(keys):
        raise InvalidValue("names one account twice", "Put all accounts of a person into one list.")
    return people


class MemorySettings(Checked, frozen=True):
    """What is remembered, when, and who shares it."""

    window: Annotated[int, Meta(ge=2)] = 100
    """Messages that a conversation may have in the prompt, however large the model's context window
    is. Then the older half is consolidated into memory."""
    idle_minutes: Annotated[int, Meta(ge=0)] = 0
    """Minutes without a message after which a conversation is consolidated; 0 for never."""
    notices: bool = False
    """Whether the chat is told, in one line, what was consolidated from it."""
    recent_days: Annotated[int, Meta(ge=0, le=31)] = 2
    """Days whose notes are in the prompt, today included; 0 for none."""
    identities: Annotated[tuple[tuple[str, ...], ...], Check(_whole_keys)] = ()
    """People with several accounts: for each, the list of their `channel:id`. They share one
    memory, and `/continue` carries a conversation over."""
    groups_see_owner: bool = False
    """Whether groups are answered with the owner's memory as well as their own."""
    embeddings: EmbeddingSettings = EmbeddingSettings()
    """Search by meaning, as an addition to search by words."""


def _known_schedule(text: str) -> str:
    """A schedule that comes again, in the short form; empty for none."""
    from nanobot.cron.schedule import Cron, Every

    if not (text := text.strip()):
        return text
    schedule = parse_schedule(text)
    if not isinstance(schedule, Every | Cron):
        hint = "Write it like `every 24h`, `every day at 4:00` or `0 4 * * *`."
        raise InvalidValue("must be a schedule that comes again", hint)
    return schedule.text


class DreamSettings(Checked, frozen=True):
    """Learning from what was said, at quiet times."""

    enabled: bool = True
    """Whether it happens by itself; `/dream` works anyway."""
    cron: Annotated[str, Check(_known_schedule)] = "every 24h"
    """When: `every 24h` (or `30m`, `7d`), words such as `every day at 4:00`, or the five fields of
    cron such as `0 4 * * *`."""
    digest: bool = False
    """Whether the owner is told afterwards what was learned, with a button to undo it."""


class CronSettings(Checked, frozen=True):
    """Scheduled jobs."""

    enabled: bool = True
    """Whether jobs run and the agent can schedule them."""


def _usable_interval(text: str) -> str:
    text = " ".join(text.lower().split())
    if text in ("off", "false"):
        return "off"
    interval = _interval(text)
    if interval is None or not timedelta(minutes=1) <= interval <= timedelta(days=30):
        hint = "Write it like 30m, 2h or 1d, or off."
        raise InvalidValue("must be a time between a minute and 30 days, or off", hint)
    return text


def _usable_hours(text: str) -> str:
    with suppress(ValueError):
        start, end = _hours(text)
        if start != end or "24:00" in text:
            return text.strip()
    hint = "Write it like 08:00-22:00, or 00:00-24:00 for always."
    raise InvalidValue("must be two different times of the day", hint)


class HeartbeatSettings(Checked, frozen=True):
    """Looking, again and again, at what HEARTBEAT.md asks for."""

    every: Annotated[str, Check(_usable_interval)] = "30m"
    """How often: a time such as `30m` or `2h`, or `off`. Nothing happens while HEARTBEAT.md asks
    for nothing."""
    active_hours: Annotated[str, Check(_usable_hours)] = "08:00-22:00"
    """The hours of the day in which it happens, in your time zone; they may reach over midnight.
    `00:00-24:00`: always."""

    @property
    def interval(self) -> timedelta | None:
        """The time between two looks; None where it is off."""
        return None if self.every == "off" else _interval(self.every)

    @property
    def hours(self) -> tuple[time, time]:
        """From when (inclusive) to when (exclusive) it happens; the second is earlier where it
        reaches over midnight, and both are midnight where it always happens."""
        return _hours(self.active_hours)


class SkillSettings(Checked, frozen=True):
    """Skills."""

    disabled: tuple[Name, ...] = ()
    """Names of skills that are left out, the built-in ones included."""


class UseLimits(Checked, frozen=True):
    """Tokens that a day's calls for one use may take, answers included; 0 for no limit."""

    jobs: WholeFrom0 = 0
    """Tokens for scheduled jobs."""
    heartbeat: WholeFrom0 = 0
    """Tokens for looking at HEARTBEAT.md."""
    helpers: WholeFrom0 = 0
    """Tokens for subagents."""
    memory: WholeFrom0 = 0
    """Tokens for consolidation and Dream."""


class LimitSettings(Checked, frozen=True):
    """Budgets, and how much others may ask for."""

    tokens_per_day: Annotated[int, Meta(ge=0)] = 0
    """Tokens that all model calls of a day may use, answers included; 0 for no limit."""
    uses: UseLimits = UseLimits()
    """Tokens that a day may use for one purpose; when they are used up, only that stops."""
    tokens_per_turn: Annotated[int, Meta(ge=0)] = 2_000_000
    """Tokens that one turn may use over all its steps, answers included; 0 for no limit."""
    messages_per_minute: Annotated[int, Meta(ge=0)] = 20
    """Messages that each person other than you may send in a minute before the rest is turned away
    without asking the model; 0 for no limit."""


class LogSettings(Checked, frozen=True):
    """The log."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least important lines that are written."""
    format: Literal["auto", "text", "json"] = "auto"
    """What the gateway writes to standard error: `text` for people, `json` with one object a line
    for machines; `auto` is `text` in a terminal and `json` elsewhere."""


class HttpSettings(Checked, frozen=True):
    """The HTTP server, which runs only where a channel needs one (a webhook)."""

    host: HostName = "127.0.0.1"
    """The address that it listens on; the default is reached from this machine alone, `0.0.0.0`
    from everywhere."""
    port: Port = 8087
    """The port that it listens on."""
    public_hosts: tuple[HostName, ...] = ()
    """Host names under which a reverse proxy passes requests on, such as `bot.example.org`, beside
    those of the channels' own webhook addresses. Requests for other names are refused; addresses
    and `localhost` always work."""


class HealthSettings(Checked, frozen=True):
    """Telling other programs how nanobot is. It holds no text of conversations."""

    enabled: bool = False
    """Whether `/health` is served over HTTP: status 200 while nanobot works, 503 where it does
    not."""
    host: HostName = "127.0.0.1"
    """The address that it is served on; the default is reached from this machine alone."""
    port: Port = 8088
    """The port that it is served on."""
    token: ApiKey = SecretStr("")
    """What a client has to send, as `Authorization: Bearer …`; empty: nothing, which only the
    default address may have."""

    def faults(self, home: Path) -> Iterator[Fault]:
        if self.enabled and not self.token.get_secret_value() and self.host not in _LOOPBACK:
            hint = (
                "Write `token: ${HEALTH_TOKEN}` and set that variable, or leave `health.host` out."
            )
            yield Fault(("token",), "is required where other machines can ask", hint)


def _usable_recipient(text: str) -> str:
    text = text.strip()
    if text and not (text.startswith("age1") and text.isalnum()):
        hint = "`nanobot backup keygen` makes a pair; the part that begins with age1 goes here."
        raise InvalidValue("must be a public key of age", hint)
    return text


class BackupSettings(Checked, frozen=True):
    """Backups that nanobot makes by itself. `nanobot backup` makes one at any time."""

    schedule: Annotated[str, Check(_known_schedule)] = ""
    """When: `every 24h`, words such as `every day at 3:30`, or the five fields of cron such as
    `"30 3 * * *"`; empty: never."""
    folder: str = ""
    """Where they go, best on another disk; empty: `backups/` in nanobot's home."""
    keep: Count = 7
    """How many are kept; the oldest go first."""
    recipient: Annotated[str, Check(_usable_recipient)] = ""
    """A public key of age (`age1…`) that they are encrypted for; empty: they are not encrypted.
    `nanobot backup keygen` makes one with its secret half."""
    media: bool = True
    """Whether files that were sent and received are in them."""

    def faults(self, home: Path) -> Iterator[Fault]:
        if not self.folder:
            return
        try:
            folder = self.place(home)
        except NanobotError as error:
            yield Fault(("folder",), f"cannot be used: {error}", error.hint)
            return
        own, backups = home.resolve(), (home / "backups").resolve()
        if folder.is_relative_to((home / "workspace").resolve()):
            yield Fault(("folder",), _SHOWN, _ELSEWHERE)
        elif folder.is_relative_to(own) and not folder.is_relative_to(backups):
            yield Fault(("folder",), "is in nanobot's own folder, which is backed up", _ELSEWHERE)

    def place(self, home: Path) -> Path:
        """Where they go. Raises `NanobotError` for a user who is not known."""
        return (home / expanduser(self.folder or "backups")).resolve()


class RetentionSettings(Checked, frozen=True):
    """What is removed after a while: never conversations, never memory. 0: no limit."""

    media_days: WholeFrom0 = 0
    """Days for which files that were sent and received are kept."""
    media_megabytes: WholeFrom0 = 0
    """Megabytes that they may take together; beyond it those used longest ago go."""
    audit_days: WholeFrom0 = 0
    """Days for which the audit log goes back at least."""
    disk_reserve_megabytes: WholeFrom0 = 200
    """Megabytes of free disk below which nothing new is taken in until there is room again;
    messages wait at their platforms, and you are told."""


class TeamSettings(Checked, frozen=True):
    """Several workers on several machines, see docs/team.md. Without a database there is one."""

    database: SecretStr = SecretStr("")
    """The PostgreSQL database of the team, `postgresql://user:password@host/name`; empty: this
    nanobot works alone, and keeps what is in flight in a file of its home."""
    shared: str = ""
    """The folder that all workers share, on a file server: conversations, memory and files are in
    it. Required with `team.database`."""
    name: str = ""
    """What this worker is called in `nanobot team status`; empty: as its machine is."""

    def faults(self, home: Path) -> Iterator[Fault]:
        """A database needs the shared folder, and the other way round."""
        database = self.database.get_secret_value()
        if bool(database) != bool(self.shared):
            missing = "shared" if database else "database"
            hint = "A team needs `team.database` and `team.shared`; docs/team.md has an example."
            yield Fault((missing,), "is required beside the other", hint)
        elif database and not database.startswith(("postgresql://", "postgres://")):
            hint = "Write it like postgresql://nanobot:password@db.example.org/nanobot."
            yield Fault(("database",), "must be the address of a PostgreSQL database", hint)
        shared = Path(self.shared)
        if self.shared and not shared.is_absolute():
            hint = "Write it like /srv/nanobot."
            yield Fault(("shared",), "must be the whole path of a folder", hint)
        elif self.shared and (shared.is_relative_to(home) or home.is_relative_to(shared)):
            hint = "A worker's home is its own; what is shared lies elsewhere: /srv/nanobot."
            yield Fault(("shared",), "is this worker's home, or in it", hint)


class Settings(Checked, frozen=True):
    """All of it, and the home that it was loaded for.

    `owner` are the owner's ids by channel; `warnings` are sentences for the owner about what works
    but should be fixed.
    """

    home: Path
    model: ModelSettings = ModelSettings()
    use: UseSettings = UseSettings()
    agent: AgentSettings = AgentSettings()
    memory: MemorySettings = MemorySettings()
    dream: DreamSettings = DreamSettings()
    tools: ToolSettings = ToolSettings()
    mcp: McpSettings = McpSettings()
    cron: CronSettings = CronSettings()
    heartbeat: HeartbeatSettings = HeartbeatSettings()
    skills: SkillSettings = SkillSettings()
    limits: LimitSettings = LimitSettings()
    log: LogSettings = LogSettings()
    http: HttpSettings = HttpSettings()
    health: HealthSettings = HealthSettings()
    backup: BackupSettings = BackupSettings()
    retention: RetentionSettings = RetentionSettings()
    team: TeamSettings = TeamSettings()
    models: Mapping[str, NamedModel] = field(default_factory=dict)
    owner: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    channels: Mapping[str, ChannelSettings] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def shared(self) -> Path:
        """Where people's text lies: the folder that a team shares, or the home."""
        return Path(self.team.shared) if self.team.shared else self.home

    @property
    def uses(self) -> Mapping[str, str]:
        """The names of the models that were chosen for a use."""
        return {use: name for use, name in asdict(self.use).items() if name}

    @property
    def chat_model(self) -> str:
        """The model that answers conversations, for people: its own name, or the owner's for it."""
        return self.use.chat or self.model.name or self.model.provider

    def models_for(self, *uses: str) -> Sequence[ModelSettings]:
        """The models that may answer calls for `uses`: those chosen for them, and the main one with
        its fallbacks, which stand in for all."""
        names = dict.fromkeys(self.uses.get(use, "") for use in uses)
        chosen = (self.models[name].completed(self.model) for name in names if name)
        return (*self.model.chain, *chosen)

    def prompt_tokens(self, *uses: str) -> int:
        """Tokens that a prompt for any of `uses` may have, whichever of the models answers."""
        return min(model.prompt_tokens for model in self.models_for(*uses))

    @property
    def prompt_tokens_by_name(self) -> Mapping[str, int]:
        """Tokens that a prompt for a named model may have; the main one may stand in for it."""
        main = self.prompt_tokens()
        models = self.models.items()
        return {name: min(main, one.completed(self.model).prompt_tokens) for name, one in models}

    @property
    def folders(self) -> tuple[Path, ...]:
        """All folders that are nanobot's own."""
        return (self.home, self.shared) if self.team.shared else (self.home,)

    def faults(self, home: Path) -> Iterator[Fault]:
        """What is wrong between sections, once they have what they take from each other."""
        if self.team.shared and not self.agent.timezone:
            yield Fault(("agent", "timezone"), "is required in a team", _ONE_TIME_ZONE)
        if self.memory.embeddings.lacks_key:
            yield missing_key("memory", "embeddings", "api_key")
        for name, one in self.models.items():
            for fault in one.completed(self.model).own_faults():
                yield replace(fault, key=("models", name, *fault.key))
        for use, chosen in asdict(self.use).items():
            if chosen and chosen not in self.models:
                hint = suggestion(chosen, [*self.models]) if self.models else _NAME_IT
                yield Fault(("use", use), "names no model in `models`", hint)
        yield from self._shown_backups(home)

    def _shown_backups(self, home: Path) -> Iterator[Fault]:
        """Whether programs of the agent could read the backups, and with them all secrets."""
        servers, folder = self.mcp.servers.values(), self.backup.place(home)
        shown = [path for server in servers for path in (*server.paths, *server.writable)]
        paths = (Path(path).resolve() for path in (*self.tools.exec.paths, *shown))
        if self.backup.folder and any(map(folder.is_relative_to, paths)):
            yield Fault(("backup", "folder"), _SHOWN, _ELSEWHERE)


SECTIONS: Mapping[str, type[Checked]] = {
    name: one.type
    for name, one in fields_of(Settings).items()
    if isinstance(one.type, type) and issubclass(one.type, Checked)
}
"""The sections of config.yaml, except those in `BY_NAME`."""

BY_CHANNEL = ("owner", "channels")
"""The sections whose keys are names of channels."""
BY_NAME = ("models", *BY_CHANNEL)
"""The sections whose keys are names that the owner chose, and of channels."""


def keys_of(
    model: type[Checked], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], FieldInfo]]:
    """Every key of a section that takes a value, with the way to it, sections within entered."""
    for name, one in fields_of(model).items():
        inner = one.type
        if isinstance(inner, type) and issubclass(inner, Checked):
            yield from keys_of(inner, (*path, name))
        else:
            yield (*path, name), one


def _interval(text: str) -> timedelta | None:
    """The time that `text` names; None where it names none."""
    from nanobot.cron.schedule import Every

    schedule = parse_schedule(f"every {text.removeprefix('every ')}")
    return schedule.interval if isinstance(schedule, Every) else None


def _hours(text: str) -> tuple[time, time]:
    """Raises `ValueError`."""
    start, end = (
        time.fromisoformat(part.strip().zfill(5).replace("24:00", "00:00"))
        for part in text.split("-")
    )
    return start, end
