"""Settings of channels: the common ones, adapters' own, and the owner's ids on each channel.

Adapters bring theirs as a subclass of `Checked`, found by the entry point group
`nanobot.channel_settings`, so checking the configuration imports no platform library.

Entry points are looked up once, because it takes 50 ms, and only if channels are configured."""

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


def check_owner_ids(owner: Mapping[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
    if any("*" in ids for ids in owner.values()):
        raise InvalidValue(
            "must list your ids, because `*` would make everyone the owner",
            "List only your own ids.",
        )
    return owner


class OwnerSettings(Checked, frozen=True):
    """The owner's ids on each channel."""

    owner: Annotated[Mapping[str, tuple[PersonId, ...]], Check(check_owner_ids)] = field(
        default_factory=dict
    )
    """Your ids on that channel, so that you can use your memory and the owner's commands. In the
    terminal, you are always the owner."""


class ChannelSettings(Checked, frozen=True):
    """Settings of every channel. `options` are its adapter's own."""

    enabled: bool = False
    """Whether the channel runs."""
    allow_from: tuple[PersonId, ...] = ()
    """Ids of people with access, in addition to the owner and paired people. `*`: everyone."""
    groups: Literal["off", "mention", "open"] = "off"
    """Which group messages nanobot answers: `off` (none), `mention` (mentions, replies, and
    commands), or `open` (all)."""
    allow_groups: Mapping[PersonId, tuple[PersonId, ...]] = field(default_factory=dict)
    """Ids of groups and, for each group, the ids of people with access: `["*"]` for everyone, `[]`
    for people who also have access in private chats."""
    options: Checked | None = None

    def faults(self, home: Path) -> Iterator[Fault]:
        if self.enabled and "*" in self.allow_from:
            hint = "List the allowed ids, or remove the key and approve people through pairing."
            yield Fault(("allow_from",), "gives everyone access to the agent", hint, True)
        if self.enabled and "*" in self.allow_groups.get("*", ()):
            text = "gives everyone in any group access to the agent"
            hint = "List groups or people."
            yield Fault(("allow_groups",), text, hint, True)
        if self.enabled and self.allow_groups and self.groups == "off":
            text, hint = "has no effect while `groups` is off", "Also set `groups: mention`."
            yield Fault(("allow_groups",), text, hint, True)


class NoOptions(Checked, frozen=True):
    """Options of adapters that have none."""


class BrokenAdapter(Exception):
    """An installed adapter's settings cannot be used. The text is the reason."""


def find_channels() -> Mapping[str, EntryPoint | None]:
    """Return the channels that can be configured, with the entry points of their settings."""
    from nanobot.bus.events import TERMINAL

    own = find_entry_points(tuple(sys.path))[SETTINGS_GROUP]
    return {name: own.get(name) for name in sorted(adapters().keys() - {TERMINAL})}


def adapters() -> Mapping[str, EntryPoint]:
    """Return the entry points of the installed channels."""
    return find_entry_points(tuple(sys.path))[CHANNELS_GROUP]


def logins() -> Mapping[str, EntryPoint]:
    """Return the entry points of the sign-ins (`Login`) of channels that need one."""
    return find_entry_points(tuple(sys.path))[LOGINS_GROUP]


@cache
def find_entry_points(_: tuple[str, ...]) -> Mapping[str, Mapping[str, EntryPoint]]:
    """Return entry points by group and name on this Python path. Reads the metadata of every
    installed distribution."""
    from importlib.metadata import entry_points  # 10 ms

    points = entry_points()
    return {
        group: {point.name: point for point in points.select(group=group)}
        for group in (SETTINGS_GROUP, CHANNELS_GROUP, LOGINS_GROUP)
    }


def options_model(point: EntryPoint | None) -> type[Checked]:
    """Return the model of an adapter's own settings. Raise `BrokenAdapter`."""
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
    """Return the valid channels of the configuration."""
    installed = find_channels()
    checked = {
        name: check_channel(document, name, installed) for name in document.section(("channels",))
    }
    return {name: settings for name, settings in checked.items() if settings is not None}


def options_of(channels: Mapping[str, ChannelSettings], name: str) -> Checked:
    """Return a channel's own settings from the configuration, or else the defaults.

    Raise `NanobotError` if the defaults are not enough."""
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
    """Return the owner's valid ids by channel.

    An embedding program may bring a channel, so an unknown name is only a warning."""
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


def check_channel(
    document: ConfigDocument, name: str, installed: Mapping[str, EntryPoint | None]
) -> ChannelSettings | None:
    path = ("channels", name)
    if name not in installed:
        document.problem(path, "no such channel is installed", suggestion(name, list(installed)))
        return None
    section = document.section(path)
    common = document.check(ChannelSettings, select_common(section), path)
    try:
        model = options_model(installed[name])
    except BrokenAdapter as error:
        hint = "Update or reinstall this channel's package."
        document.problem(path, f"its settings are broken: {error}", hint)
        return None
    own = {key: value for key, value in section.items() if key not in COMMON}
    options = document.check(model, own, path, also_known=COMMON)
    if common is None or options is None or isinstance(options, NoOptions):
        return common
    return replace(common, options=options)


def select_common(section: Mapping[str, Value]) -> dict[str, Value]:
    """Return the common settings. A group without a list gets an empty one, because the key has a
    meaning here."""
    common = {key: section[key] for key in COMMON if key in section}
    groups = common.get("allow_groups")
    if isinstance(groups, dict):
        common["allow_groups"] = {
            group: [] if people is None else people for group, people in groups.items()
        }
    return common
