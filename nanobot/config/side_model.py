"""What the settings of each model beside the main one have in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from pydantic import Field, SecretStr

from nanobot.config.base import Fault, Strict
from nanobot.config.values import ApiKey, Url, needs_key, no_key


class SideModel(Strict):
    """A model beside the main one, should there be one: off while it has no name."""

    base_url: Url = Field(
        default="",
        description="Where its API is, up to and including `/v1`; left out, that of the main "
        "model.",
    )
    api_key: ApiKey = Field(
        default=SecretStr(""),
        description="Its key; left out, that of the main model if the server is the same.",
    )
    model: str = Field(default="", description="The model, as the server knows it.")

    def completed(self, base_url: str, api_key: SecretStr) -> Self:
        """These settings with what they lack taken from the main model; as they are while off.

        A key goes only to the server that it was given for.
        """
        if not self.model:
            return self
        url = self.base_url or base_url
        key = self.api_key
        if not key.get_secret_value() and url == base_url:
            key = api_key
        return self.model_copy(update={"base_url": url, "api_key": key})

    def faults(self) -> Iterator[Fault]:
        """What is wrong with settings that are complete."""
        if self.model and needs_key(self.base_url, self.api_key):
            yield no_key("api_key")
