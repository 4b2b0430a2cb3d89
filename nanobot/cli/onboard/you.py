"""The step about the person: what they are called and where they live."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from nanobot.cli.onboard.files import basics_of
from nanobot.cli.onboard.parts import Part
from nanobot.cli.onboard.wording import described
from nanobot.config.yamltext import Change
from nanobot.errors import NanobotError
from nanobot.zones import system_zone_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nanobot.cli.onboard.options import OnboardOptions
    from nanobot.cli.onboard.people import Guide

_NAME, _ZONE = "Name", "Time zone"


async def ask_you(person: Guide, home: Path, zone: str, said: Mapping[str, str]) -> Part:
    """Ask for name and time zone; `zone` is the one that is set, `said` are the basics that were
    said a moment ago."""
    person.head("You")
    person.say("What you say here stands in workspace/USER.md, where you can add to it.")
    known = basics_of(home).get(_NAME, "")
    name = await person.ask("What are you called? (Enter to leave it open)", said.get(_NAME, known))
    guessed = said.get(_ZONE) or zone or system_zone_name(os.environ)
    while True:
        answer = await person.ask("Your time zone", guessed or "UTC")
        try:
            return part_of(name if name != known else "", checked_zone(answer), zone)
        except NanobotError as error:
            person.say(error.for_people())


def given_you(options: OnboardOptions, present: str) -> Part:
    """What the command line says of the person. Raises `NanobotError`."""
    zone = checked_zone(options.timezone) if options.timezone else ""
    return part_of(options.owner_name, zone, present)


def part_of(name: str, zone: str, present: str) -> Part:
    """What is to be written: of what is empty or as it was, nothing."""
    path = ("agent", "timezone")
    name = " ".join(name.split())
    anew = zone if zone != present else ""
    return Part(
        (Change(path, anew, described(path)),) if anew else (),
        told=tuple((topic, said) for topic, said in (("you", name), ("time zone", zone)) if said),
        basics={key: said for key, said in ((_NAME, name), (_ZONE, anew)) if said},
    )


def checked_zone(name: str) -> str:
    """The name of a time zone. Raises `NanobotError`."""
    from nanobot.config.settings import AgentSettings

    try:
        return AgentSettings(timezone=name).timezone
    except ValidationError:
        raise NanobotError(
            f"there is no time zone {name!r}", hint="It is written like Europe/Berlin."
        ) from None
