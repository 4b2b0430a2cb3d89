"""What keeps the channel from working: said once, and once when it is over."""

from __future__ import annotations

from loguru import logger

from nanobot.channel import ChannelHost


class Trouble:
    """Tells the log and `nanobot status`; the same again is not told again."""

    def __init__(self, host: ChannelHost) -> None:
        self._host = host
        self._said = ""

    @property
    def known(self) -> bool:
        """Whether something is wrong, as far as was said."""
        return bool(self._said)

    def say(self, text: str) -> None:
        """Something is wrong."""
        if text != self._said:
            self._said = text
            logger.warning("telegram: {}", text)
            self._host.report(text)

    def over(self) -> None:
        """Nothing is wrong any more."""
        if self._said:
            self._said = ""
            logger.info("telegram: works again")
            self._host.report("")
