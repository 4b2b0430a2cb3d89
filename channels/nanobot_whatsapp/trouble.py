"""What keeps the channel from working: said once when it begins, and once when it is over."""

from __future__ import annotations

from loguru import logger

from nanobot.channel import ChannelHost


class Trouble:
    """Tells the log and `nanobot status`; the same again is not told again."""

    def __init__(self, host: ChannelHost) -> None:
        self._host = host
        self._said = ""

    @property
    def known(self) -> str:
        """What is wrong, as far as was said; empty: nothing."""
        return self._said

    def say(self, text: str) -> None:
        """Something is wrong."""
        if text != self._said:
            self._said = text
            logger.warning("whatsapp: {}", text)
            self._host.report(text)

    def over(self) -> None:
        """Nothing is wrong any more."""
        if self._said:
            self._said = ""
            logger.info("whatsapp: works again")
            self._host.report("")
