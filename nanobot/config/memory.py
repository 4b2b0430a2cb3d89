"""The settings of what nanobot remembers and who the owner is, of what happens by itself (jobs, the
heartbeat, skills), and of what bounds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import time, timedelta
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from nanobot.config.model import EmbeddingSettings
from nanobot.config.values import Count, Fault, Name, PersonId, Strict, Unfit, schedule_in


class MemorySettings(Strict):
    """What is remembered, when, and who shares it."""

    window: Count = 100
    """Messages that a conversation may have in the prompt before the oldest are put away into
    memory, however large the model's context window is."""
    chunk: Count = 50
    """How many messages are then put away at once; fewer than `memory.window`."""
    idle_minutes: Annotated[int, Field(ge=0)] = 0
    """Minutes without a message after which a conversation is put away; 0 for never."""
    model: str = ""
    """The model that condenses conversations and dreams, on the same server as the main one; empty
    for the main one."""
    notices: bool = False
    """Whether the chat is told, in one line, what was put away from it."""
    identities: tuple[tuple[str, ...], ...] = ()
    """People with several accounts: for each, the list of their `channel:id`. They share one
    memory, and `/continue` carries a conversation over."""
    groups_see_owner: bool = False
    """Whether groups are answered with the owner's memory as well as their own."""
    library: bool = True
    """Whether the documents in `workspace/library/` are searched with the rest."""
    # Constructed, so that importing this builds no validator.
    embeddings: EmbeddingSettings = EmbeddingSettings.model_construct()
    """Search by meaning, as an addition to search by words."""

    @field_validator("identities")
    @classmethod
    def _whole_keys(cls, people: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
        keys = [key for person in people for key in person]
        example = "Write it like [[telegram:12345, whatsapp:4915112345678]]."
        for key in keys:
            channel, _, account = key.partition(":")
            if not channel.strip() or not account.strip():
                raise Unfit("must hold accounts written as channel:id", example)
        if any(len(person) < 2 for person in people):
            raise Unfit("must give each person at least two accounts", example)
        if len(set(keys)) < len(keys):
            raise Unfit("names one account twice", "Put all accounts of a person into one list.")
        return people

    def faults(self, home: Path) -> Iterator[Fault]:
        if self.chunk >= self.window:
            yield Fault(
                ("chunk",),
                "must be less than `memory.window`",
                "Half of `memory.window` is a good choice.",
            )


class DreamSettings(Strict):
    """Learning from what was said, at quiet times."""

    enabled: bool = True
    """Whether it happens by itself; `/dream` works anyway."""
    cron: str = "every 24h"
    """When: `every 24h` (or `30m`, `7d`), or the five fields of cron such as `0 4 * * *`."""
    max_unread: Count = 20
    """So many history entries that it has not read make it happen sooner."""
    batch: Count = 20
    """History entries that it reads at a time."""
    max_calls: Count = 20
    """Model calls that one run may make."""
    max_tokens: Count = 200_000
    """Tokens that one run may use, answers included."""
    digest: bool = False
    """Whether the owner is told afterwards what was learned, with a button to undo it."""

    @field_validator("cron")
    @classmethod
    def _known_schedule(cls, text: str) -> str:
        from nanobot.cron.schedule import Cron, Every

        if not isinstance(schedule_in(text), Every | Cron):
            hint = "Write it like `every 24h` or `0 4 * * *`."
            raise Unfit("must be a schedule that comes again", hint)
        return text.strip()


class OwnerSettings(Strict):
    """Who the owner is, on each channel."""

    owner: Mapping[str, tuple[PersonId, ...]] = {}
    """Your own ids on that channel, so that what you say there goes into your memory and commands
    that only the owner may give work. Other people have a memory of their own. The terminal is
    always yours."""

    @field_validator("owner")
    @classmethod
    def _named(cls, owner: Mapping[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
        if any("*" in ids for ids in owner.values()):
            raise Unfit("must name you; `*` would make everyone the owner", "Write your own ids.")
        return owner


class CronSettings(Strict):
    """Scheduled jobs."""

    enabled: bool = True
    """Whether jobs run and the agent can schedule them."""


class HeartbeatSettings(Strict):
    """Looking, again and again, at what HEARTBEAT.md asks for."""

    every: str = "30m"
    """How often: a time such as `30m` or `2h`, or `off`. Nothing happens while HEARTBEAT.md asks
    for nothing."""
    active_hours: str = "08:00-22:00"
    """The hours of the day in which it happens, in your time zone; they may reach over midnight.
    `00:00-24:00`: always."""

    @field_validator("every")
    @classmethod
    def _usable_interval(cls, text: str) -> str:
        text = " ".join(text.lower().split())
        if text in ("off", "false"):
            return "off"
        interval = _interval(text)
        if interval is None or not timedelta(minutes=1) <= interval <= timedelta(days=30):
            hint = "Write it like 30m, 2h or 1d, or off."
            raise Unfit("must be a time between a minute and 30 days, or off", hint)
        return text

    @field_validator("active_hours")
    @classmethod
    def _usable_hours(cls, text: str) -> str:
        with suppress(ValueError):
            start, end = _hours(text)
            if start != end or "24:00" in text:
                return text.strip()
        hint = "Write it like 08:00-22:00, or 00:00-24:00 for always."
        raise Unfit("must be two different times of the day", hint)

    @property
    def interval(self) -> timedelta | None:
        """The time between two looks; None where it is off."""
        return None if self.every == "off" else _interval(self.every)

    @property
    def hours(self) -> tuple[time, time]:
        """From when (inclusive) to when (exclusive) it happens; the second is earlier where it
        reaches over midnight, and both are midnight where it always happens."""
        return _hours(self.active_hours)


class SkillSettings(Strict):
    """Skills."""

    disabled: tuple[Name, ...] = ()
    """Names of skills that are left out, the built-in ones included."""


class LimitSettings(Strict):
    """Budgets, and how much others may ask for."""

    tokens_per_day: Annotated[int, Field(ge=0)] = 0
    """Tokens that all model calls of a day may use, answers included; 0 for no limit."""
    tokens_per_turn: Annotated[int, Field(ge=0)] = 2_000_000
    """Tokens that one turn may use over all its steps, answers included; 0 for no limit."""
    messages_per_minute: Annotated[int, Field(ge=0)] = 20
    """Messages that each person other than you may send in a minute before the rest is turned away
    without asking the model; 0 for no limit."""
    warn_at: Annotated[float, Field(gt=0, le=1)] = 0.8
    """The part of `limits.tokens_per_day` after which you are warned, once a day."""


def _interval(text: str) -> timedelta | None:
    """The time that `text` names; None where it names none."""
    from nanobot.cron.schedule import Every

    schedule = schedule_in(f"every {text.removeprefix('every ')}")
    return schedule.interval if isinstance(schedule, Every) else None


def _hours(text: str) -> tuple[time, time]:
    """Raises `ValueError`."""
    start, end = (
        time.fromisoformat(part.strip().zfill(5).replace("24:00", "00:00"))
        for part in text.split("-")
    )
    return start, end
