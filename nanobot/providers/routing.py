"""Which of the configured models answers a call: the one that the call names, else the one for its
use, else the main one."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from nanobot.providers.port import CallOptions, Prompt, Provider, Reply, TextSink


class RoutingProvider:
    """`named` are the models by the owner's names, `uses` the name for each use that has one.

    `CallOptions.model` is such a name; any other name is passed on to the `main` one, as a model of
    its server. Calls with pictures go where chats go, unless there is a model for pictures.
    """

    def __init__(
        self, main: Provider, named: Mapping[str, Provider], uses: Mapping[str, str]
    ) -> None:
        self._main, self._named = main, named
        self._uses: Mapping[str, str] = {"pictures": uses.get("chat", ""), **uses}

    async def complete(
        self, prompt: Prompt, options: CallOptions, on_text: TextSink | None = None
    ) -> Reply:
        """See `Provider`."""
        chosen = self._named.get(options.model or self._uses.get(options.use, ""))
        if chosen is None:
            return await self._main.complete(prompt, options, on_text)
        return await chosen.complete(prompt, replace(options, model=""), on_text)

    async def close(self) -> None:
        """Release the connections of all."""
        for provider in (self._main, *self._named.values()):
            await provider.close()
