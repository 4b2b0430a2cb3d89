"""A model whose use is written down: for calls that no turn reports (memory's own)."""

from __future__ import annotations

from collections.abc import Callable

from nanobot.providers.port import CallOptions, Prompt, Provider, Reply, TextSink, Usage


class MeteredProvider:
    """Passes calls on to `provider` and tells `record` what each one used."""

    def __init__(self, provider: Provider, record: Callable[[Usage], None]) -> None:
        self._provider, self._record = provider, record

    async def complete(
        self, prompt: Prompt, options: CallOptions, on_text: TextSink | None = None
    ) -> Reply:
        """See `Provider`."""
        reply = await self._provider.complete(prompt, options, on_text)
        self._record(reply.usage)
        return reply

    async def close(self) -> None:
        """See `Provider`."""
        await self._provider.close()
