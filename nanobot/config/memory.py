"""The settings of what nanobot remembers: `memory` and `dream`, and who the owner is.

The settings of what happens by itself and of what bounds it: scheduled jobs, the heartbeat,
skills and budgets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import time, timedelta
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from nanobot.config.model import EmbeddingSettings
from nanobot.config.values import Count, Fault, Name, PersonId, Strict, Unfit

_SCHEDULES = "Write it like `every 24h` or `0 4 * * *`."


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
    # Constructed, lest importing this builds its validator.
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
        from nanobot.cron.schedule import At, ScheduleError, parse  # only where one is set

        try:
            schedule = parse(text)
        except ScheduleError as error:
            raise Unfit("is no schedule", _SCHEDULES) from error
        if isinstance(schedule, At):
            raise Unfit("must be a schedule that comes again", _SCHEDULES)
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


_SPAN = re.compile(r"(?:every\s+)?((?:[0-9]{1,5}\s*[mhd]\s*)+)", re.ASCII)
_PART = re.compile(r"([0-9]+)\s*([mhd])", re.ASCII)
_MINUTES = {"m": 1, "h": 60, "d": 1_440}
_HOURS = re.compile(r"([0-9]{1,2}):([0-9]{2})\s*-\s*([0-9]{1,2}):([0-9]{2})", re.ASCII)
_OFF = ("off", "false")


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

    @field_validator("every", mode="before")
    @classmethod
    def _off_as_yaml_has_it(cls, value: object) -> object:
        """A bare `off` is false to other tools that write YAML."""
        return "off" if value is False else value

    @field_validator("every")
    @classmethod
    def _usable_interval(cls, text: str) -> str:
        text = " ".join(text.lower().split())
        if text in _OFF:
            return "off"
        if not timedelta(minutes=1) <= _interval(text) <= timedelta(days=30):
            hint = "Write it like 30m, 2h or 1d, or off."
            raise Unfit("must be a time between a minute and 30 days, or off", hint)
        return text

    @field_validator("active_hours")
    @classmethod
    def _usable_hours(cls, text: str) -> str:
        text = text.strip()
        if _hours(text) is None:
            hint = "Write it like 08:00-22:00, or 00:00-24:00 for always."
            raise Unfit("must be two different times of the day", hint)
        return text

    @property
    def interval(self) -> timedelta | None:
        """The time between two looks; None where it is off."""
        return None if self.every == "off" else _interval(self.every)

    @property
    def hours(self) -> tuple[time, time]:
        """From when (inclusive) to when (exclusive) it happens; the second is earlier where it
        reaches over midnight, and both are midnight where it always happens."""
        found = _hours(self.active_hours)
        assert found is not None  # it was validated
        return found


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


def _interval(text: str) -> timedelta:
    """The time that `text` names; zero where it names none."""
    match = _SPAN.fullmatch(text)
    parts = _PART.findall(match[1]) if match else ()
    return timedelta(minutes=sum(int(number) * _MINUTES[unit] for number, unit in parts))


def _hours(text: str) -> tuple[time, time] | None:
    match = _HOURS.fullmatch(text)
    if match is None:
        return None
    start, end = (int(match[1]) * 60 + int(match[2])), (int(match[3]) * 60 + int(match[4]))
    if int(match[2]) > 59 or int(match[4]) > 59 or max(start, end) > 1_440 or start == end:
        return None
    return _time(start), _time(end)


def _time(minutes: int) -> time:
    return time(minutes // 60 % 24, minutes % 60)
