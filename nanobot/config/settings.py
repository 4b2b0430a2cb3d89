"""The settings: every key, its type, default, limits and meaning. Frozen once loaded.

These classes own that knowledge; the table in docs/configuration.md, the JSON Schema and the checks
are made from them. Here are the agent, the channels and nanobot as a service; models, memory and
routines, and tools have modules of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field, SecretStr, SerializeAsAny, field_validator
from pydantic.fields import FieldInfo

from nanobot.config.document import nearest
from nanobot.config.memory import (
    CronSettings,
    DreamSettings,
    HeartbeatSettings,
    LimitSettings,
    MemorySettings,
    SkillSettings,
)
from nanobot.config.model import ModelSettings
from nanobot.config.tools import McpSettings, ToolSettings
from nanobot.config.values import (
    ApiKey,
    Count,
    Duration,
    Fault,
    HostName,
    PersonId,
    Strict,
    Unfit,
    schedule_in,
)
from nanobot.errors import NanobotError
from nanobot.text import expanduser

Port = Annotated[int, Field(ge=1, le=65_535)]
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_ELSEWHERE = "Name a folder elsewhere, best on another disk."
WholeFrom0 = Annotated[int, Field(ge=0)]


class LogSettings(Strict):
    """The log."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least important lines that are written."""
    format: Literal["auto", "text", "json"] = "auto"
    """What the gateway writes to standard error: `text` for people, `json` with one object a line
    for machines; `auto` is `text` in a terminal and `json` elsewhere."""
    file: bool = True
    """Whether the gateway writes its log to `logs/nanobot.log` as well, which `nanobot logs`
    reads."""
    max_megabytes: Count = 10
    """Megabytes after which a new log file is begun."""
    keep: Count = 5
    """Log files that are kept beside the current one."""


class HttpSettings(Strict):
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


class HealthSettings(Strict):
    """Telling other programs how nanobot is. It holds no text of conversations."""

    enabled: bool = False
    """Whether `/health` is served over HTTP: status 200 while nanobot works, 503 where it does
    not."""
    host: HostName = "127.0.0.1"
    """The address that it is served on; the default is reached from this machine alone."""
    port: Port = 8088
    """The port that it is served on."""
    metrics: bool = False
    """Whether `/metrics` is served beside it, for Prometheus."""
    token: ApiKey = SecretStr("")
    """What whoever asks has to send, as `Authorization: Bearer …`; empty: nothing, which only the
    default address may have."""

    def faults(self, home: Path) -> Iterator[Fault]:
        if self.enabled and not self.token.get_secret_value() and self.host not in _LOOPBACK:
            yield Fault(
                ("token",),
                "is required where other machines can ask",
                "Write `token: ${HEALTH_TOKEN}` and set that variable, or leave `health.host` out.",
            )


class BackupSettings(Strict):
    """Backups that nanobot makes by itself. `nanobot backup` makes one at any time."""

    schedule: str = ""
    """When: the five fields of cron such as `"30 3 * * *"`; empty: never."""
    folder: str = ""
    """Where they go, best on another disk; empty: `backups/` in nanobot's home."""
    keep: Count = 7
    """How many are kept; the oldest go first."""
    recipient: str = ""
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
        if folder.is_relative_to((home / "workspace").resolve()):
            yield self.exposed()
        elif folder.is_relative_to(home.resolve()) and not folder.is_relative_to(
            (home / "backups").resolve()
        ):
            reason = "is in nanobot's own folder, which is backed up"
            yield Fault(("folder",), reason, _ELSEWHERE)

    def place(self, home: Path) -> Path:
        """Where they go. Raises `NanobotError` for a user who is not known."""
        return (home / expanduser(self.folder or "backups")).resolve()

    def exposed(self) -> Fault:
        """What is wrong where programs of the agent see them."""
        return Fault(("folder",), "would show the agent all secrets", _ELSEWHERE)

    @field_validator("schedule")
    @classmethod
    def _usable_schedule(cls, text: str) -> str:
        from nanobot.cron.schedule import Cron

        text = " ".join(text.split())
        if text and not isinstance(schedule_in(text), Cron):
            hint = 'Write it like "30 3 * * *", which is each night at half past three.'
            raise Unfit("must be the five fields of cron", hint)
        return text

    @field_validator("recipient")
    @classmethod
    def _usable_recipient(cls, text: str) -> str:
        text = text.strip()
        if text and not (text.startswith("age1") and text.isalnum()):
            hint = "`nanobot backup keygen` makes a pair; the part that begins with age1 goes here."
            raise Unfit("must be a public key of age", hint)
        return text


class RetentionSettings(Strict):
    """What is not kept for ever. Conversations and memory always are. 0: no limit."""

    media_days: WholeFrom0 = 0
    """Days for which files that were sent and received are kept."""
    media_megabytes: WholeFrom0 = 0
    """Megabytes that they may take together; beyond it those used longest ago go."""
    spill_days: WholeFrom0 = 30
    """Days for which tool results that were too long for the model are kept whole."""
    audit_days: WholeFrom0 = 0
    """Days for which the audit log goes back at least."""
    disk_reserve_megabytes: WholeFrom0 = 200
    """Megabytes of free disk below which nothing new is taken in until there is room again;
    messages wait at their platforms, and you are told."""


class AgentSettings(Strict):
    """How the agent works."""

    max_iterations: Count = 50
    """Steps (model calls) that one turn may take before it must answer."""
    max_concurrent_turns: Count = 64
    """Turns that run at the same time, over all sessions."""
    on_busy: Literal["steer", "queue", "interrupt"] = "steer"
    """What a message does that arrives during a turn: `steer` gives it to the model at its next
    step, `queue` lets it wait, `interrupt` stops the turn for it."""
    timezone: str = ""
    """The person's time zone, such as `Europe/Berlin`; empty for the system's."""
    timestamps: Literal["relative", "absolute", "off"] = "relative"
    """How the model sees when a message was sent: `relative` says today or yesterday as well,
    `absolute` just the date and time, `off` nothing."""
    wait_for_model_hours: Duration = 24.0
    """Hours for which a message waits for a model that is out of reach."""
    shutdown_grace_seconds: Duration = 20.0
    """Seconds that running turns get to finish when nanobot stops."""

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, name: str) -> str:
        from zoneinfo import ZoneInfo, available_timezones  # only where one is set

        name = name.strip()
        with suppress(KeyError, OSError, ValueError):
            if name:
                ZoneInfo(name)
            return name
        near = nearest(name, sorted(available_timezones()))
        hint = f"Did you mean '{near}'?" if near else "Write it like Europe/Berlin."
        raise Unfit("is not the name of a time zone", hint)


class ChannelSettings(Strict):
    """What every channel has; `options` is what its adapter has beyond that."""

    enabled: bool = False
    """Whether the channel runs."""
    allow_from: tuple[PersonId, ...] = ()
    """Ids of the people who may talk to the agent, beside the owner and those who were let in by
    pairing; `*` for everyone."""
    groups: Literal["off", "mention", "open"] = "off"
    """What it does in groups: `off` nothing, `mention` answers those who mention it, reply to it or
    give it a command, `open` answers every message."""
    allow_groups: Mapping[PersonId, tuple[PersonId, ...]] = {}
    """Ids of the groups that it may be used in and, for each, of the people there who may talk to
    it: `["*"]` for everyone in the group, `[]` for those who may talk to it anyway."""
    options: SerializeAsAny[BaseModel] | None = None

    @field_validator("groups", mode="before")
    @classmethod
    def _off_as_yaml_has_it(cls, value: object) -> object:
        """A bare `off` is false to other tools that write YAML."""
        return "off" if value is False or value == "false" else value


class Settings(Strict):
    """All of it, and the home that it was loaded for.

    `owner` are the owner's ids by channel; `warnings` are sentences for the owner about what works
    but should be fixed.
    """

    home: Path
    model: ModelSettings = Field(default_factory=ModelSettings)
    agent: AgentSettings = Field(default_factory=AgentSettings)
    memory: MemorySettings = Field(default_factory=MemorySettings)
    dream: DreamSettings = Field(default_factory=DreamSettings)
    tools: ToolSettings = Field(default_factory=ToolSettings)
    mcp: McpSettings = Field(default_factory=McpSettings)
    cron: CronSettings = Field(default_factory=CronSettings)
    heartbeat: HeartbeatSettings = Field(default_factory=HeartbeatSettings)
    skills: SkillSettings = Field(default_factory=SkillSettings)
    limits: LimitSettings = Field(default_factory=LimitSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    http: HttpSettings = Field(default_factory=HttpSettings)
    health: HealthSettings = Field(default_factory=HealthSettings)
    backup: BackupSettings = Field(default_factory=BackupSettings)
    retention: RetentionSettings = Field(default_factory=RetentionSettings)
    owner: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    channels: Mapping[str, ChannelSettings] = Field(default_factory=dict)
    warnings: tuple[str, ...] = ()


SECTIONS: Mapping[str, type[BaseModel]] = {
    name: field.annotation
    for name, field in Settings.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
}
"""The sections of config.yaml, beside `owner` and `channels`."""

BY_CHANNEL = ("owner", "channels")
"""The sections whose keys are names of channels."""


def keys_of(
    model: type[BaseModel], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], FieldInfo]]:
    """Every key of a section that takes a value, with the way to it, sections within entered."""
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from keys_of(inner, (*path, name))
        else:
            yield (*path, name), field
