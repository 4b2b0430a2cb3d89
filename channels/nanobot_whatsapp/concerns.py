"""What is wrong, of several things that can be so at a time: the connection, the token, the disk,
a chat that takes nothing. `nanobot status` shows all of them."""

from __future__ import annotations

from typing import Literal

from nanobot_whatsapp.trouble import Trouble

Key = Literal["connection", "meta", "token", "account", "disk", "window"]
"""`connection`: that of a linked device. `meta`: it cannot be reached. `disk`: what comes in cannot
be stored. `window`: someone has not written for 24 hours."""


class Concerns:
    """Each begins with `say` and ends with `over`."""

    def __init__(self, trouble: Trouble) -> None:
        self._trouble = trouble
        self._said: dict[Key, str] = {}

    @property
    def any(self) -> bool:
        """Whether something is wrong."""
        return bool(self._said)

    def say(self, key: Key, text: str) -> None:
        """This is wrong."""
        self._said[key] = text
        self._tell()

    def over(self, key: Key) -> None:
        """This is not wrong any more."""
        if self._said.pop(key, None) is not None:
            self._tell()

    def _tell(self) -> None:
        if self._said:
            self._trouble.say("; ".join(self._said.values()))
        else:
            self._trouble.over()
