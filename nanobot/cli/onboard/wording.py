"""Words of the wizard that come from elsewhere: what stands above a key that is written for the
first time is its description, from the settings themselves, so that it cannot say something else
than the documentation; and what a model server refused is said for somebody who has no settings
yet."""

from __future__ import annotations

from nanobot.config.channels import BrokenAdapter, installed_channels, options_model
from nanobot.config.schema import descriptions
from nanobot.config.settings import SECTIONS, ChannelSettings
from nanobot.errors import NanobotError, ProviderError

_KEYS = (
    ("model.api_key", "the key"),
    ("model.name", "the model's name"),
    ("model.base_url", "the address"),
)


def described(path: tuple[str, ...]) -> str:
    """The description of the key at `path`; empty where it needs none."""
    section, *rest = path
    if section == "channels" and len(rest) == 2:
        return _of_channel(rest[0], rest[1])
    if section == "owner":
        return "Your own ids there: what you say goes into your memory."
    return descriptions(SECTIONS[section]).get(rest[0], "") if len(rest) == 1 else ""


def _of_channel(name: str, key: str) -> str:
    if key in ChannelSettings.model_fields:
        return descriptions(ChannelSettings)[key]
    try:
        return descriptions(options_model(installed_channels().get(name))).get(key, "")
    except BrokenAdapter:
        return ""


def explained(error: ProviderError) -> NanobotError:
    """What a model server said, for somebody who has no config.yaml yet."""
    message, hint = str(error), error.hint
    for key, plain in _KEYS:
        message, hint = message.replace(key, plain), hint.replace(key, plain)
    return NanobotError(message, hint=hint)
