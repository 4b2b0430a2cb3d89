"""Which models the server that answers conversations has, for those who choose among them."""

from __future__ import annotations

from loguru import logger
from msgspec import Struct

from nanobot.errors import ProviderError

_LIST_SECONDS = 5.0


class ServedModels(Struct, frozen=True):
    """The models of the server that answers conversations."""

    base_url: str
    api_key: str

    async def names(self) -> tuple[str, ...]:
        """Their names; none where the server does not say."""
        from nanobot.providers.discovery import listed_models  # seldom needed

        try:
            models = await listed_models(self.base_url, self.api_key, seconds=_LIST_SECONDS)
        except ProviderError as error:
            logger.info("the model server gave no list of its models: {}", error)
            return ()
        return tuple(one.name for one in models)
