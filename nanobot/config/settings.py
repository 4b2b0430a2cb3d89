"""Settings: every key, its type, default, limits and meaning. Frozen once loaded.

The table in docs/configuration.md, the JSON Schema and the checks are made from these classes.
Models and tools have their own modules."""

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
_LOOPBACK = ("localhost", "127.0.0.1", "::1")  # need no token
_ELSEWHERE = "Choose another folder, preferably on another disk."
_SHOWN = "would give the agent access to all secrets"
_NAME_IT = "Add it under `models`, with a name."
_ONE_TIME_ZONE = (
    "Set the same time zone, such as Europe/Berlin, for all workers. Jobs depend on it."
)
WholeFrom0 = Annotated[int, Meta(ge=0)]


def check_zone(name: str) -> str:
    from zoneinfo import available_timezones  # rarely needed

    from nanobot.clock import find_zone

    name = name.strip()
    if not name or find_zone(name):
        return name
    near = nearest(name, sorted(available_timezones()))
    hint = f"Did you mean '{near}'?" if near else "Write it like Europe/Berlin."
    raise InvalidValue("is not a time zone", hint)


class AgentSettings(Checked, frozen=True):
    """The agent's limits and behavior."""

    max_iterations: Count = 50
    """Maximum model calls per turn."""
    max_concurrent_turns: Count = 64
    """Maximum turns that run at the same time, in all conversations."""
    on_busy: Literal["steer", "queue", "interrupt"] = "steer"
    """Messages that arrive during a turn join it at the next step (`steer`), wait until it ends
    (`queue`), or stop it (`interrupt`)."""
    timezone: Annotated[str, Check(check_zone)] = ""
    """The time zone, such as `Europe/Berlin`. Empty: the system's time zone. Required in a team."""
    shutdown_grace_seconds: Duration = 20.0
    """Seconds that turns and sends have to finish when nanobot stops. Stopping can take ten seconds
    more."""


def check_identities(people: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
    keys = [key for person in people for key in person]
    example = "Write it like [[telegram:12345, whatsapp:4915112345678]]."
    for key in keys:
        channel, _, account = key.partition(":")
        if not channel.strip() or not account.strip():
            raise InvalidValue("must list accounts as channel:id", example)
    if any(len(person) < 2 for person in people):
        raise InvalidValue("must list at least two accounts for each person", example)
    if len(set(keys)) < len(keys):
        raise InvalidValue("lists an account twice", "Put all accounts of a person into one list.")
    return people


class MemorySettings(Checked, frozen=True):
    """Memory: its content, times and readers."""

    window: Annotated[int, Meta(ge=2)] = 100
    """Maximum messages of a conversation in the prompt. At this limit, the older half is
    consolidated."""
    idle_minutes: Annotated[int, Meta(ge=0)] = 0
    """Idle minutes before a conversation is consolidated. 0: never."""
    notices: bool = False
    """Whether nanobot sends a notice to the chat after each consolidation."""
    recent_days: Annotated[int, Meta(ge=0, le=31)] = 2
    """How many days of notes the prompt contains, including today."""
    identities: Annotated[tuple[tuple[str, ...], ...], Check(check_identities)] = ()
    """For each person with several accounts, a list of their `channel:id`. These accounts share one
    memory, and `/continue` moves a conversation between them."""
    groups_see_owner: bool = False
    """Whether the owner's memory is also used in groups."""
    embeddings: EmbeddingSettings = EmbeddingSettings()
    """Search by meaning, in addition to search by words."""


def check_schedule(text: str) -> str:
    """Return a recurring schedule in the short form, empty for none."""
    from nanobot.cron.schedule import Cron, Every

    if not (text := text.strip()):
        return text
    schedule = parse_schedule(text)
    if not isinstance(schedule, Every | Cron):
        hint = "Write it like `every 24h`, `every day at 4:00` or `0 4 * * *`."
        raise InvalidValue("must be a recurring schedule", hint)
    return schedule.text


class DreamSettings(Checked, frozen=True):
    """Regular learning from past conversations."""

    enabled: bool = True
    """Whether Dream runs on its schedule. `/dream` always works."""
    cron: Annotated[str, Check(check_schedule)] = "every 24h"
    """The schedule, such as `every 24h`, `every day at 4:00`, or `0 4 * * *`."""
    digest: bool = False
    """Whether nanobot sends the owner a message about new facts, with undo buttons."""


class CronSettings(Checked, frozen=True):
    """Scheduled jobs."""

    enabled: bool = True
    """Whether jobs run, and whether the agent can schedule them."""


def check_interval(text: str) -> str:
    text = " ".join(text.lower().split())
    if text in ("off", "false"):
        return "off"
    interval = parse_interval(text)
    if interval is None or not timedelta(minutes=1) <= interval <= timedelta(days=30):
        hint = "Write it like 30m, 2h, or 1d, or write off."
        raise InvalidValue("must be a time between a minute and 30 days, or off", hint)
    return text


def check_hours(text: str) -> str:
    with suppress(ValueError):
        start, end = parse_hours(text)
        if start != end or "24:00" in text:
            return text.strip()
    hint = "Write it like 08:00-22:00, or 00:00-24:00 for always."
    raise InvalidValue("must be two different times of the day", hint)


class HeartbeatSettings(Checked, frozen=True):
    """Regular checks of the tasks in HEARTBEAT.md."""

    every: Annotated[str, Check(check_interval)] = "30m"
    """The interval, such as `2h`, or `off`."""
    active_hours: Annotated[str, Check(check_hours)] = "08:00-22:00"
    """The active hours in `agent.timezone`, which can span midnight. `00:00-24:00`: always."""

    @property
    def interval(self) -> timedelta | None:
        """The time between two heartbeats, None if they are off."""
        return None if self.every == "off" else parse_interval(self.every)

    @property
    def hours(self) -> tuple[time, time]:
        """Start (inclusive) and end (exclusive) of the active hours. The end is earlier if they
        span midnight, and both are midnight if they are the whole day."""
        return parse_hours(self.active_hours)


class SkillSettings(Checked, frozen=True):
    """Skills."""

    disabled: tuple[Name, ...] = ()
    """Skills to turn off, including built-in ones."""


class UseLimits(Checked, frozen=True):
    """Tokens per day for all calls of one use, including answers. 0: no limit."""

    jobs: WholeFrom0 = 0
    """Maximum tokens per day for scheduled jobs. 0: no limit."""
    heartbeat: WholeFrom0 = 0
    """Maximum tokens per day for the heartbeat."""
    helpers: WholeFrom0 = 0
    """Maximum tokens per day for subagents."""
    memory: WholeFrom0 = 0
    """Maximum tokens per day for consolidation and Dream."""


class LimitSettings(Checked, frozen=True):
    """Budgets, and limits for other people."""

    tokens_per_day: Annotated[int, Meta(ge=0)] = 0
    """Maximum tokens per day for all calls, including answers. 0: no limit."""
    uses: UseLimits = UseLimits()
    """Tokens per day for each purpose. At the limit, only that purpose stops."""
    tokens_per_turn: Annotated[int, Meta(ge=0)] = 2_000_000
    """Maximum tokens per turn, including answers. 0: no limit."""
    messages_per_minute: Annotated[int, Meta(ge=0)] = 20
    """Maximum messages per minute from each person except you. Further messages are rejected. 0: no
    limit."""


class LogSettings(Checked, frozen=True):
    """The log."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level to log."""
    format: Literal["auto", "text", "json"] = "auto"
    """The format on standard error: `text`, `json`, or `auto` (`text` in a terminal, otherwise
    `json`)."""


class HttpSettings(Checked, frozen=True):
    """The HTTP server, which runs only if a channel needs it (for a webhook)."""

    host: HostName = "127.0.0.1"
    """The address to listen on. `0.0.0.0` also accepts requests from other machines."""
    port: Port = 8087
    """The port to listen on."""
    public_hosts: tuple[HostName, ...] = ()
    """Host names of your reverse proxy, such as `bot.example.org`. Webhook hosts, IP addresses, and
    `localhost` are always accepted, and all other names are rejected."""


class HealthSettings(Checked, frozen=True):
    """Health reports to other programs, without text of conversations."""

    enabled: bool = False
    """Whether `/health` and `/metrics` are served over HTTP."""
    host: HostName = "127.0.0.1"
    """The address to listen on. The default accepts only requests from this machine."""
    port: Port = 8088
    """The port to listen on."""
    token: ApiKey = SecretStr("")
    """A token that clients must send as `Authorization: Bearer …`. Required if you change
    `host`."""

    def faults(self, home: Path) -> Iterator[Fault]:
        if self.enabled and not self.token.get_secret_value() and self.host not in _LOOPBACK:
            hint = "Write `token: ${HEALTH_TOKEN}` and set that variable, or remove `health.host`."
            yield Fault(("token",), "is required if other machines can connect", hint)


def check_recipient(text: str) -> str:
    text = text.strip()
    if text and not (text.startswith("age1") and text.isalnum()):
        hint = "Create one with `nanobot backup keygen`. It begins with age1."
        raise InvalidValue("must be an age public key", hint)
    return text


class BackupSettings(Checked, frozen=True):
    """Scheduled backups. `nanobot backup` makes one at any time."""

    schedule: Annotated[str, Check(check_schedule)] = ""
    """The schedule, such as `every 24h`, `every day at 3:30`, or `"30 3 * * *"`. Empty: never."""
    folder: str = ""
    """The backup folder, preferably on another disk. Empty: `backups/` in nanobot's home."""
    keep: Count = 7
    """The number of backups to keep."""
    recipient: Annotated[str, Check(check_recipient)] = ""
    """The public encryption key (`age1…`) from `nanobot backup keygen`. Empty: no encryption."""
    media: bool = True
    """Whether backups include attachments."""

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
        """Return the folder of backups. Raise `NanobotError` for an unknown user."""
        return (home / expanduser(self.folder or "backups")).resolve()


class RetentionSettings(Checked, frozen=True):
    """Limits for old files, but never for conversations and memory. 0: no limit."""

    media_days: WholeFrom0 = 0
    """Days to keep unused attachments. 0: forever."""
    media_megabytes: WholeFrom0 = 0
    """Maximum total size of attachments in megabytes. 0: no limit."""
    audit_days: WholeFrom0 = 0
    """Minimum days to keep the audit log. 0: forever."""
    disk_reserve_megabytes: WholeFrom0 = 200
    """Minimum free disk space in megabytes. Below it, nanobot stops accepting messages."""


class TeamSettings(Checked, frozen=True):
    """Several workers on several machines, see docs/team.md. No database means no team."""

    database: SecretStr = SecretStr("")
    """The PostgreSQL URL, such as `postgresql://user:password@host/name`. Empty: no team."""
    shared: str = ""
    """The folder that all workers share. Required with `team.database`."""
    name: str = ""
    """The worker's name in `nanobot team status`. Empty: the machine's name."""

    def faults(self, home: Path) -> Iterator[Fault]:
        """Check that database and shared folder are set together."""
        database = self.database.get_secret_value()
        if bool(database) != bool(self.shared):
            missing = "shared" if database else "database"
            hint = "A team needs both `team.database` and `team.shared` (docs/team.md)."
            yield Fault((missing,), "is also required", hint)
        elif database and not database.startswith(("postgresql://", "postgres://")):
            hint = "Write it like postgresql://nanobot:password@db.example.org/nanobot."
            yield Fault(("database",), "must be the URL of a PostgreSQL database", hint)
        shared = Path(self.shared)
        if self.shared and not shared.is_absolute():
            hint = "Write it like /srv/nanobot."
            yield Fault(("shared",), "must be an absolute path", hint)
        elif self.shared and (shared.is_relative_to(home) or home.is_relative_to(shared)):
            hint = "Choose a folder outside the workers' homes, such as /srv/nanobot."
            yield Fault(("shared",), "is this worker's home, or in it", hint)


class Settings(Checked, frozen=True):
    """All settings, and the home that they were loaded for.

    `owner` are the owner's ids by channel. `warnings` are sentences for the owner about settings
    that work but should be fixed."""

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
    def data_folder(self) -> Path:
        """The folder of people's text: a team's shared folder, or the home."""
        return Path(self.team.shared) if self.team.shared else self.home

    @property
    def uses(self) -> Mapping[str, str]:
        """The names of the models chosen for a use."""
        return {use: name for use, name in asdict(self.use).items() if name}

    @property
    def chat_model(self) -> str:
        """Name of the model for conversations, to show to people."""
        return self.use.chat or self.model.name or self.model.provider

    def name_on_server(self, chosen: str = "") -> str:
        """Return the name of a chosen model on its server, or of the model for conversations. A
        model in `models` without a name of its own differs from the main one only in its settings.
        """
        chosen = chosen or self.use.chat
        named = self.models.get(chosen)
        return (named.name if named else "") or chosen or self.model.name or self.model.provider

    def models_for(self, *uses: str) -> Sequence[ModelSettings]:
        """Return the models that may answer calls for `uses`: the chosen ones, and the main one
        with its fallbacks, which can replace any."""
        names = dict.fromkeys(self.uses.get(use, "") for use in uses)
        chosen = (self.models[name].fill_from(self.model) for name in names if name)
        return (*self.model.chain, *chosen)

    def prompt_tokens(self, *uses: str) -> int:
        """Return the token limit of a prompt for any of `uses`, with any of their models."""
        return min(model.prompt_tokens for model in self.models_for(*uses))

    @property
    def prompt_tokens_by_name(self) -> Mapping[str, int]:
        """Token limits of prompts for named models. The main one may replace each."""
        main = self.prompt_tokens()
        models = self.models.items()
        return {name: min(main, one.fill_from(self.model).prompt_tokens) for name, one in models}

    @property
    def context_windows(self) -> Mapping[str, int]:
        """Context windows of the named models, and of the main one under an empty name."""
        windows = {name: one.fill_from(self.model) for name, one in self.models.items()}
        main = min(one.context_window for one in self.models_for("chat"))
        return {"": main, **{name: one.context_window for name, one in windows.items()}}

    @property
    def folders(self) -> tuple[Path, ...]:
        """nanobot's own folders."""
        return (self.home, self.data_folder) if self.team.shared else (self.home,)

    def faults(self, home: Path) -> Iterator[Fault]:
        """Yield the faults between sections, once they are filled in."""
        if self.team.shared and not self.agent.timezone:
            yield Fault(("agent", "timezone"), "is required in a team", _ONE_TIME_ZONE)
        if self.memory.embeddings.lacks_key:
            yield missing_key("memory", "embeddings", "api_key")
        for name, one in self.models.items():
            for fault in one.fill_from(self.model).own_faults():
                yield replace(fault, key=("models", name, *fault.key))
        for use, chosen in asdict(self.use).items():
            if chosen and chosen not in self.models:
                hint = suggestion(chosen, [*self.models]) if self.models else _NAME_IT
                yield Fault(("use", use), "is not a model in `models`", hint)
        yield from self._find_readable_backups(home)

    def _find_readable_backups(self, home: Path) -> Iterator[Fault]:
        """Yield a fault if the agent's programs could read the backups, with all secrets."""
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
"""Sections whose keys are names of channels."""
BY_NAME = ("models", *BY_CHANNEL)
"""Sections whose keys are names: of channels, or chosen by the owner."""


def keys_of(
    model: type[Checked], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], FieldInfo]]:
    """Yield every key of a section that takes a value, with its path, including nested sections."""
    for name, one in fields_of(model).items():
        inner = one.type
        if isinstance(inner, type) and issubclass(inner, Checked):
            yield from keys_of(inner, (*path, name))
        else:
            yield (*path, name), one


def parse_interval(text: str) -> timedelta | None:
    """Return the time in `text`, or None."""
    from nanobot.cron.schedule import Every

    schedule = parse_schedule(f"every {text.removeprefix('every ')}")
    return schedule.interval if isinstance(schedule, Every) else None


def parse_hours(text: str) -> tuple[time, time]:
    """Return start and end. Raise `ValueError`."""
    start, end = (
        time.fromisoformat(part.strip().zfill(5).replace("24:00", "00:00"))
        for part in text.split("-")
    )
    return start, end
