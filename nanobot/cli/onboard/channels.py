"""The steps about channels: their adapters ask, and what they found out is written here."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from nanobot.channel.entry_points import Setup, SetupRequest, SetupResult
from nanobot.cli.channels import lent
from nanobot.cli.onboard.parts import Before, Part
from nanobot.cli.onboard.wording import described
from nanobot.config.values import Unfit, checked_id
from nanobot.config.yamltext import Change, Setting
from nanobot.errors import NanobotError

if TYPE_CHECKING:
    from nanobot.cli.onboard.people import Guide
    from nanobot.clock import Clock
    from nanobot.config.settings import Settings

GROUP = "nanobot.channel_setups"


def names() -> tuple[str, ...]:
    """The channels that can be set up here."""
    return tuple(sorted({point.name for point in entry_points(group=GROUP)}))


async def set_up(
    name: str,
    person: Guide,
    settings: Settings,
    before: Before,
    clock: Clock,
    given: Mapping[str, str],
    *,
    attended: bool,
    test: bool,
) -> Part:
    """Set a channel up. Raises `NanobotError`."""
    channel = settings.channels.get(name)
    request = SetupRequest(
        person=person,
        options=channel.options if channel else None,
        owners=settings.owner.get(name, ()),
        given=given,
        clock=clock,
        attended=attended,
        test=test,
    )
    (point, *_) = entry_points(group=GROUP, name=name)
    setup: Setup = point.load()
    with lent(settings.home, name):  # so that what the person writes meanwhile is seen here
        result = await setup(request)
    return part_of(name, result, before) if result is not None else Part()


def part_of(name: str, result: SetupResult, before: Before) -> Part:
    """What is to be written for what an adapter found out."""
    variables = {
        key: before.variable(("channels", name, key), f"{name}_{key}".upper(), secret)
        for key, secret in result.secrets.items()
    }
    values: dict[str, Setting] = {"enabled": True}
    values |= {key: f"${{{variable}}}" for key, variable in variables.items()}
    values |= result.values
    changes = [_change(("channels", name, key), value) for key, value in values.items()]
    if result.owners:
        changes.insert(0, _change(("owner", name), tuple(map(_checked, result.owners))))
    who = result.who or "on"
    owner = f", you are {', '.join(result.owners)}" if result.owners else ""
    return Part(
        tuple(changes),
        {variables[key]: secret for key, secret in result.secrets.items()},
        ((name, who + owner),),
        (name,) if result.sign_in else (),
    )


def _checked(id: str) -> str:
    try:
        return checked_id(id)
    except Unfit as error:
        raise NanobotError(f"your id {error}", hint=error.hint) from None


def _change(path: tuple[str, ...], value: Setting) -> Change:
    return Change(path, value, described(path))
