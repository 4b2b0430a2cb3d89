"""Settings of channels: those of every channel, and who the owner is there.

Adapters bring theirs as a subclass of `Checked`, found by the entry point group
`nanobot.channel_settings`, so that checking the configuration imports no platform library.

Looking entry points up costs 50 ms, so it is done once, and only where channels are configured.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import field
from msgspec.structs import replace

from nanobot.config.document import ConfigDocument, Value
from nanobot.config.values import PersonId
from nanobot.errors import NanobotError
from nanobot.validation import (
    Check,
    Checked,
    Fault,
    Invalid,
    InvalidValue,
    build,
    suggestion,
)

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

SETTINGS_GROUP = "nanobot.channel_settings"
CHANNELS_GROUP = "nanobot.channels"
LOGINS_GROUP = "nanobot.channel_logins"
COMMON = ("enabled", "allow_from", "groups", "allow_groups")


def _check_owner_ids(owner: Mapping[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
    if any("*" in ids for ids in owner.values()):
        raise InvalidValue(
            "must list your ids, because `*` would make everyone the owner",
            "List only your own ids.",
        )
    return owner


class OwnerSettings(Checked, frozen=True):
    """Who the owner is, on each channel."""

    owner: Annotated[Mapping[str, tuple[PersonId, ...]], Check(_check_owner_ids)] = field(
        default_factory=dict
    )
    """Your ids on that channel, for your memory and the owner's commands. In the terminal, you
    are always the owner."""


class ChannelSettings(Checked, frozen=True):
    """What every channel has; `options` is what its adapter has beyond that."""

    enabled: bool = False
    """Whether the channel runs."""
    allow_from: tuple[PersonId, ...] = ()
    """Ids of people with access, in addition to the owner and paired people. `*`: everyone."""
    groups: Literal["off", "mention", "open"] = "off"
    """Answered messages in groups: none (`off`), mentions, replies, and commands (`mention`), or
    all (`open`)."""
    allow_groups: Mapping[PersonId, tuple[PersonId, ...]] = field(default_factory=dict)
    """Ids of groups, and for each the people with access: `["*"]` for everyone, `[]` for people who
    have it anyway."""
    options: Checked | None = None

    def faults(self, home: Path) -> Iterator[Fault]:
        if self.enabled and "*" in self.allow_from:
            hint = "List the allowed ids, or remove the key and approve people by pairing."
            yield Fault(("allow_from",), "gives everyone access to the agent", hint, True)
        if self.enabled and "*" in self.allow_groups.get("*", ()):
            text = "gives everyone in any group access to the agent"
            hint = "List groups or people."
            yield Fault(("allow_groups",), text, hint, True)
        if self.enabled and self.allow_groups and self.groups == "off":
            text, hint = "has no effect while `groups` is off", "Also set `groups: mention`."
            yield Fault(("allow_groups",), text, hint, True)


class NoOptions(Checked, frozen=True):
    """For adapters without settings of their own."""


class BrokenAdapter(Exception):
    """An installed adapter's settings cannot be used; the text says what is wrong with them."""


def find_channels() -> Mapping[str, EntryPoint | None]:
    """The channels that can be configured, each with where its own settings are found, if any."""
    from nanobot.bus.events import TERMINAL

    own = _entry_points(tuple(sys.path))[SETTINGS_GROUP]
    return {name: own.get(name) for name in sorted(adapters().keys() - {TERMINAL})}


def adapters() -> Mapping[str, EntryPoint]:
    """The channels that are installed, each with where it is found."""
    return _entry_points(tuple(sys.path))[CHANNELS_GROUP]


def logins() -> Mapping[str, EntryPoint]:
    """The channels that a person has to sign in to, each with what does so (a `Login`)."""
    return _entry_points(tuple(sys.path))[LOGINS_GROUP]


@cache
def _entry_points(_: tuple[str, ...]) -> Mapping[str, Mapping[str, EntryPoint]]:
    """By group and name, where Python looks on this path. Reads the metadata of every installed
    distribution."""
    from importlib.metadata import entry_points  # 10 ms

    points = entry_points()
    return {
        group: {point.name: point for point in points.select(group=group)}
        for group in (SETTINGS_GROUP, CHANNELS_GROUP, LOGINS_GROUP)
    }


def options_model(point: EntryPoint | None) -> type[Checked]:
    """The model of an adapter's own settings. Raises `BrokenAdapter`."""
    if point is None:
        return NoOptions
    try:
        model = point.load()
    except Exception as error:  # a boundary: foreign code may raise anything on import
        raise BrokenAdapter(f"{point.value} cannot be imported ({type(error).__name__})") from error
    if isinstance(model, type) and issubclass(model, Checked):
        return model
    raise BrokenAdapter(f"{point.value} is not a subclass of nanobot.validation.Checked")


def check_channels(document: ConfigDocument) -> dict[str, ChannelSettings]:
    """The channels of the configuration, as far as they are right."""
    installed = find_channels()
    checked = {
        name: _check_channel(document, name, installed) for name in document.section(("channels",))
    }
    return {name: settings for name, settings in checked.items() if settings is not None}


def options_of(channels: Mapping[str, ChannelSettings], name: str) -> Checked:
    """A channel's own settings: those in the configuration, or the defaults where it has none.

    Raises `NanobotError` where the defaults will not do.
    """
    if name in channels and (options := channels[name].options) is not None:
        return options
    try:
        return build(options_model(find_channels().get(name)), {})
    except (BrokenAdapter, Invalid):
        raise NanobotError(
            f"the channel {name} is not set up yet",
            hint=f"Add its settings under channels.{name} in config.yaml.",
        ) from None


def check_owner(document: ConfigDocument) -> Mapping[str, tuple[str, ...]]:
    """The owner's ids by channel, as far as they are right.

    A channel may be one that an embedding program brings, so an unknown name is no problem.
    """
    owner = document.section(("owner",))
    settings = document.check(OwnerSettings, {"owner": owner}, ())
    if settings is None:
        return {}
    installed = list(find_channels())
    for name in settings.owner:
        if name not in installed:
            hint = suggestion(name, installed)
            text = "no such channel is installed"
            document.problem(("owner", name), text, hint, is_doubtful=True)
    return settings.owner


def _check_channel(
    document: ConfigDocument, name: str, installed: Mapping[str, EntryPoint | None]
) -> ChannelSettings | None:
    path = ("channels", name)
    if name not in installed:
        document.problem(path, "no such channel is installed", suggestion(name, list(installed)))
        return None
    section = document.section(path)
    common = document.check(ChannelSettings, _common(section), path)
    try:
        model = options_model(installed[name])
    except BrokenAdapter as error:
        hint = "Update or reinstall the package of this channel."
        document.problem(path, f"its settings are broken: {error}", hint)
        return None
    own = {key: value for key, value in section.items() if key not in COMMON}
    options = document.check(model, own, path, also_known=COMMON)
    if common is None or options is None or isinstance(options, NoOptions):
        return common
    return replace(common, options=options)


def _common(section: Mapping[str, Value]) -> dict[str, Value]:
    """What every channel has. A group without a list has an empty one: here the key says
    something."""
    common = {key: section[key] for key in COMMON if key in section}
    groups = common.get("allow_groups")
    if isinstance(groups, dict):
        common["allow_groups"] = {
            group: [] if people is None else people for group, people in groups.items()
        }
    return common
