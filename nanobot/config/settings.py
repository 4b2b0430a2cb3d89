"""The settings: every key, its type, default, limits and meaning. Frozen once loaded.

These classes own that knowledge; the table in docs/configuration.md, the JSON Schema and the checks
are made from them. Models are in `nanobot.config.model`, memory and routines in
`nanobot.config.memory`, tools and MCP servers in `nanobot.config.tools`, and the service in
`nanobot.config.service`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field, SerializeAsAny, field_validator
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
from nanobot.config.service import (
    BackupSettings,
    HealthSettings,
    HttpSettings,
    LogSettings,
    RetentionSettings,
)
from nanobot.config.tools import McpSettings, ToolSettings
from nanobot.config.values import Count, Duration, PersonId, Strict, Unfit, checked_id


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
        name = name.strip()
        if not name:
            return ""
        from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            near = nearest(name, sorted(available_timezones()))
            hint = f"Did you mean '{near}'?" if near else "Write it like Europe/Berlin."
            raise Unfit("is not the name of a time zone", hint) from None
        return name


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
    allow_groups: Mapping[str, tuple[PersonId, ...]] = {}
    """Ids of the groups that it may be used in and, for each, of the people there who may talk to
    it: `["*"]` for everyone in the group, `[]` for those who may talk to it anyway."""
    options: SerializeAsAny[BaseModel] | None = None

    @field_validator("groups", mode="before")
    @classmethod
    def _off_as_yaml_has_it(cls, value: object) -> object:
        """A bare `off` is false to other tools that write YAML."""
        return "off" if value is False or value == "false" else value

    @field_validator("allow_groups")
    @classmethod
    def _group_ids(cls, groups: Mapping[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
        if not all(checked_id(group) == group for group in groups):
            raise Unfit("must have ids of groups as its keys", 'Write it like `"-1001234": []`.')
        return groups


class Settings(Strict):
    """All of it, and the home that it was loaded for.

    `owner` are the owner's ids by channel; `warnings` are sentences for the owner about what works
    but should be mended.
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
