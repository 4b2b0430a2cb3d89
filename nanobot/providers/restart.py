"""A reply's text while the request behind it may have to be made again."""

from __future__ import annotations

from nanobot.providers.port import TextSink


class RestartableText:
    """A sink in front of another. `void()` takes back what went through since the last restart."""

    def __init__(self, sink: TextSink | None) -> None:
        self._sink = sink
        self._shown = False

    @property
    def sink(self) -> TextSink | None:
        """What to give the provider; None where nobody listens."""
        return None if self._sink is None else self._pass_on

    def void(self) -> None:
        """Tell the listener that the text so far is void, if it got any."""
        if self._shown and self._sink is not None:
            self._shown = False
            self._sink("", True)

    def _pass_on(self, text: str, restart: bool) -> None:
        self._shown = bool(text) or (self._shown and not restart)
        if self._sink is not None:
            self._sink(text, restart)
