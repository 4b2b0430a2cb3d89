"""The settings of what happens by itself and of what bounds it: scheduled jobs, the heartbeat,
skills and budgets.
"""

from __future__ import annotations

import re
from datetime import time, timedelta
from typing import Annotated

from pydantic import Field, field_validator

from nanobot.config.base import Strict
from nanobot.config.values import Name, Unfit

_SPAN = re.compile(r"(?:every\s+)?((?:[0-9]{1,5}\s*[mhd]\s*)+)", re.ASCII)
_PART = re.compile(r"([0-9]+)\s*([mhd])", re.ASCII)
_MINUTES = {"m": 1, "h": 60, "d": 1_440}
_HOURS = re.compile(r"([0-9]{1,2}):([0-9]{2})\s*-\s*([0-9]{1,2}):([0-9]{2})", re.ASCII)
_OFF = ("off", "false")


class CronSettings(Strict):
    """Scheduled jobs."""

    enabled: bool = Field(
        default=True, description="Whether jobs run and the agent can schedule them."
    )


class HeartbeatSettings(Strict):
    """Looking, again and again, at what HEARTBEAT.md asks for."""

    every: str = Field(
        default="30m",
        description="How often: a time such as `30m` or `2h`, or `off`. Nothing happens while "
        "HEARTBEAT.md asks for nothing.",
    )
    active_hours: str = Field(
        default="08:00-22:00",
        description="The hours of the day in which it happens, in your time zone; they may reach "
        "over midnight. `00:00-24:00`: always.",
    )

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

    disabled: tuple[Name, ...] = Field(
        default=(), description="Names of skills that are left out, the built-in ones included."
    )


class LimitSettings(Strict):
    """Budgets, and how much others may ask for."""

    tokens_per_day: Annotated[int, Field(ge=0)] = Field(
        default=0,
        description="Tokens that all model calls of a day may use, answers included; 0 for no "
        "limit.",
    )
    tokens_per_turn: Annotated[int, Field(ge=0)] = Field(
        default=2_000_000,
        description="Tokens that one turn may use over all its steps, answers included; 0 for no "
        "limit.",
    )
    messages_per_minute: Annotated[int, Field(ge=0)] = Field(
        default=20,
        description="Messages that each person other than you may send in a minute before the "
        "rest is turned away without asking the model; 0 for no limit.",
    )
    warn_at: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.8,
        description="The part of `limits.tokens_per_day` after which you are warned, once a day.",
    )


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
