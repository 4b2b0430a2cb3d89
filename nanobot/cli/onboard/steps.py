"""The steps of setting nanobot up, as values in a list: each asks a `Person`, whoever that is, and
returns what is to be written."""

from __future__ import annotations

import argparse
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from importlib.metadata import EntryPoint, entry_points

from msgspec import Struct

from nanobot.channel import Person, Setup, SetupRequest, SetupResult
from nanobot.cli.channels import leased
from nanobot.cli.client import NoGateway
from nanobot.cli.onboard.files import ConfigPart, name_in
from nanobot.cli.onboard.model import ModelStep, from_environment, server_options
from nanobot.cli.onboard.people import ask_checked
from nanobot.clock import SystemClock, system_zone_name
from nanobot.config.changing import ExistingFiles
from nanobot.config.settings import AgentSettings, Settings
from nanobot.config.values import checked_id
from nanobot.config.yamltext import ConfigChange, Setting
from nanobot.errors import NanobotError
from nanobot.validation import Invalid, InvalidValue, build

GROUP = "nanobot.channel_setups"


class Situation:
    """What a step needs to know: whom it asks, what the command line says, and the settings and
    files of the home before the change."""

    def __init__(
        self,
        person: Person,
        options: argparse.Namespace,
        settings: Settings,
        before: ExistingFiles,
    ) -> None:
        self.person, self.options, self.settings, self.before = person, options, settings, before
        self.clock = SystemClock(settings.agent.timezone)
        self.model = ModelStep(person, options, settings.model, before, self.clock)
        variable = options.telegram_token_env
        given = {
            "telegram": {
                "token": from_environment(variable) if variable else "",
                "base_url": options.telegram_base_url,
                "owner": options.owner_telegram,
            },
            "whatsapp": {"owner": options.owner_whatsapp},
            "you": {"name": options.owner_name, "timezone": options.timezone},
        }
        self._given = {name: {k: v for k, v in one.items() if v} for name, one in given.items()}
        if options.offline or server_options(options):
            self._given["model"] = {"given": "by options of its own"}

    def given(self, step: str) -> Mapping[str, str] | None:
        """What the command line says of a step: of a channel, by the keys of its settings. None if
        it says nothing."""
        return self._given.get(step) or None


class OnboardStep(Struct, frozen=True):
    """One step. `title` is what it is about. A basic one is part of each first run."""

    name: str
    title: str
    ask: Callable[[Situation], Awaitable[ConfigPart]]
    is_basic: bool = False


def list_steps() -> list[OnboardStep]:
    """All steps, in their order: the model, the channels that are installed, the person."""
    points = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    return [
        OnboardStep("model", "the model", ask_model, is_basic=True),
        *(OnboardStep(one.name, _titled(one.name), partial(ask_channel, one)) for one in points),
        OnboardStep("you", "your name and time zone", ask_person, is_basic=True),
    ]


def _titled(channel: str) -> str:
    return "WhatsApp" if channel == "whatsapp" else channel.capitalize()


async def ask_model(at: Situation) -> ConfigPart:
    """The model, which is tried out."""
    return await at.model.run()


async def ask_channel(point: EntryPoint, at: Situation) -> ConfigPart:
    """A channel: its adapter asks."""
    channel = at.settings.channels.get(point.name)
    request = SetupRequest(
        person=at.person,
        options=channel.options if channel else None,
        owners=at.settings.owner.get(point.name, ()),
        given=at.given(point.name) or {},
        clock=at.clock,
        attended=not at.options.non_interactive,
        test=not at.options.no_test,
    )
    setup: Setup = point.load()
    with ExitStack() as stack:
        with suppress(NoGateway):  # free the channel, to receive its messages here
            stack.enter_context(leased(at.settings.home, point.name))
        result = await setup(request)
    return ConfigPart() if result is None else _part_of_channel(point.name, result, at.before)


def _part_of_channel(name: str, result: SetupResult, before: ExistingFiles) -> ConfigPart:
    """What is to be written for what an adapter found out."""
    variables = {
        key: before.variable(("channels", name, key), f"{name}_{key}".upper(), secret)
        for key, secret in result.secrets.items()
    }
    values: dict[str, Setting] = {"enabled": True}
    values |= {key: f"${{{variable}}}" for key, variable in variables.items()}
    values |= result.values
    changes = [ConfigChange(("channels", name, key), value) for key, value in values.items()]
    owners = _checked_owners(result.owners)
    if owners:
        changes.insert(0, ConfigChange(("owner", name), owners))
    told = [result.who or "on", *([f"you are {', '.join(owners)}"] if owners else ())]
    told += ["not checked"] if result.unchecked else []
    return ConfigPart(
        tuple(changes),
        {variables[key]: secret for key, secret in result.secrets.items()},
        ((name, ", ".join(told)),),
        (name,) if result.sign_in else (),
        unchecked=(name,) if result.unchecked else (),
    )


def _checked_owners(owners: Sequence[str]) -> tuple[str, ...]:
    try:
        return tuple(map(checked_id, owners))
    except InvalidValue as error:
        raise NanobotError(f"your id {error}", hint=error.hint) from None


async def ask_person(at: Situation) -> ConfigPart:
    """Name and time zone: those of the options, or else those that the person gives."""
    options, present = at.options, at.settings.agent.timezone
    name, zone, known = options.owner_name, options.timezone, name_in(options.home)
    if not (name or zone):
        name = await at.person.ask("Your name (Enter to leave it open)", known)
        usual = present or system_zone_name(os.environ) or "UTC"
        zone = await ask_checked(at.person, "Your time zone", _checked_zone, usual)
    zone = _checked_zone(zone)
    name = " ".join(name.split())
    summary = (("you", name), ("time zone", zone))
    return ConfigPart(
        (ConfigChange(("agent", "timezone"), zone),) if zone not in ("", present) else (),
        summary=tuple((topic, value) for topic, value in summary if value),
        name=name if name != known else "",
    )


def _checked_zone(text: str) -> str:
    try:
        return build(AgentSettings, {"timezone": text}).timezone
    except Invalid:
        hint = "It is written like Europe/Berlin."
        raise NanobotError(f"there is no time zone {text!r}", hint=hint) from None
