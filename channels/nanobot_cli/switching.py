"""Going from one conversation to another in the terminal: `/new`, and `/resume` with its list."""

from __future__ import annotations

from collections.abc import Sequence

from nanobot.clock import Clock
from nanobot.errors import NanobotError
from nanobot.text import clean, pluralize
from nanobot_cli.conversations import (
    Ask,
    Conversation,
    ConversationList,
    LastConversation,
    number_entries,
)
from nanobot_cli.markdown import render
from nanobot_cli.screen import Surface
from nanobot_cli.transcript import Transcript

COMMANDS = (("/resume", "Continue another conversation"),)
_SHOWN = 4
"""Messages of a conversation that are shown when it is continued."""
_LONGEST = 1_500
"""Characters of each."""


class Switching:
    """The conversations to go to. `nanobot agent` continues the `last` one."""

    def __init__(
        self,
        ask: Ask,
        surface: Surface,
        transcript: Transcript,
        clock: Clock,
        last: LastConversation,
    ) -> None:
        self._known = ConversationList(ask)
        self._surface, self._transcript, self._clock = surface, transcript, clock
        self._last = last
        self._offered: Sequence[Conversation] = ()
        """The numbered list that a terminal without a cursor shows."""

    def new_key(self, current: str) -> str:
        """Return the key of a new conversation, other than the `current` one."""
        return self._known.new_key(self._clock.now(), current, self._last.read())

    def note_use(self, key: str) -> None:
        """Let `nanobot agent` continue this conversation."""
        self._last.write(key)

    async def choose(self, words: str) -> Conversation | None:
        """Return the conversation that the person chooses from the list."""
        from nanobot_cli.picker import Picker

        return await Picker(self._known, self._surface, self._clock.now(), words).choose()

    def offer(self, words: str) -> None:
        """Print the list with numbers, to be chosen by the next line."""
        try:
            self._offered = self._known.find(words).page
        except NanobotError as error:
            self._transcript.print_error(str(error), error.hint)
            return
        if not self._offered:
            self._transcript.line("No conversations found.")
            return
        self._transcript.line(number_entries(self._offered, self._clock.now()), "")
        count = pluralize(len(self._offered), "conversation")
        self._transcript.line(f"{count}. To continue one, type its number.")

    def take_offered(self, typed: str) -> Conversation | None:
        """Return the conversation with the typed number, if a list was just printed."""
        offered, self._offered = self._offered, ()
        number = int(typed) if typed.strip().isdecimal() else 0
        return offered[number - 1] if 0 < number <= len(offered) else None

    def show_last_messages(self, key: str) -> None:
        """Print the end of a conversation."""
        try:
            messages = self._known.messages(key, _SHOWN)
        except NanobotError as error:
            self._transcript.print_error(str(error), error.hint)
            return
        for role, content in messages:
            text = clean(content)
            text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
            if role == "user" and self._surface.moves:
                self._surface.print_words(text)
                continue
            self._surface.leave_gap()
            shown = f"> {text}" if role == "user" else render(text, self._surface.width)
            self._surface.print(shown)
        self._surface.leave_gap()
