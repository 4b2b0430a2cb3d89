"""Texts about a turn and its conversation: what the person waits for, with its seconds, the status
line, and the first lines of a chat. Pure, except for the clock."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from nanobot.clock import Clock
from nanobot.text import pluralize
from nanobot_cli.text import columns, one_line
from nanobot_cli.wire import ChatEvent, Delta, Reading, Reply, Taken, Tool, ToolDone

_PENDING = "waiting"
_ASKED = "waiting for the model"
_MODEL_WIDTH = 40
LONGEST = 200
"""Most characters of an outage."""

_BUILT_IN = "built-in offline model"
_ABOUT_OFFLINE = (
    "This is a small program, not a language model. It remembers, reminds, and takes notes."
    " To connect a real model, leave this chat and run: nanobot onboard"
)
_TRY_OFFLINE = (
    "Try: “My dentist is Dr. Kim, remember that.” or “Remind me in 10 minutes to stretch.”"
)
_TRY = "Try: “What can you do?” or “Every weekday at 8, tell me the weather.”"


class Waiting:
    """The thing that a person waits for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """Begin to wait: a message was sent."""
        self._tools: list[tuple[str, float]] = []
        self._set(_PENDING)

    def note(self, event: ChatEvent) -> None:
        """Note an event of the turn."""
        match event:
            case Taken() | Reading(text=""):
                self._set(_ASKED)
            case Reading():
                self._set(event.text, counts=False)
            case Delta():
                self._tools = []
                if self._text != "writing":
                    self._set("writing")
            case Tool():
                self._tools.append((event.hint, self._clock.monotonic()))
            case ToolDone():
                self._end_tool(event.hint)

    def describe(self, width: int) -> str:
        """Return a text such as `web_fetch example.org 12 s`. Only an outage may be longer than
        `width`, as its end tells the time of the next try."""
        text, since, more = self._text, self._since, ""
        if self._tools:
            (text, since), *others = self._tools
            more = f" +{len(others)}" if others else ""
        seconds = int(self._clock.monotonic() - since)
        if not (self._tools or self._counts):
            return one_line(text, LONGEST)
        end = more + (f" {seconds} s" if seconds else "")
        return one_line(text, max(1, width - len(end))) + end

    def _set(self, text: str, *, counts: bool = True) -> None:
        self._text, self._counts, self._since = text, counts, self._clock.monotonic()

    def _end_tool(self, hint: str) -> None:
        hints = [one[0] for one in self._tools]
        if hint in hints:
            del self._tools[hints.index(hint)]
        if not self._tools:
            self._set(_ASKED)


class StatusLine:
    """The line below the prompt. `facts` come from the operation `status.conversation`."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self.facts = facts
        self._milliseconds = 0

    def end_turn(self, reply: Reply) -> None:
        """Note the time of an answer."""
        if reply.outcome == "done" and reply.milliseconds:
            self._milliseconds = reply.milliseconds

    def text(self, width: int) -> str:
        """Return as many parts as fit `width` columns, the most important first."""
        line, *others = self._parts()
        for part in others:
            if columns(f"{line} · {part}") > width:
                break
            line = f"{line} · {part}"
        return line if columns(line) <= width else one_line(line, width)

    def _parts(self) -> list[str]:
        parts = [one_line(self.facts.get("model") or "", _MODEL_WIDTH)]
        if self.facts.get("offline"):  # its tokens cost nothing
            return [_BUILT_IN]
        if percent := self.facts.get("context_percent"):
            parts.append(f"context {percent} %")
        if tokens := self.facts.get("tokens_today"):
            parts.append(f"{_short(tokens)} tokens today")
        if (seconds := self._milliseconds / 1000) >= 0.1:
            parts.append(f"last turn {seconds:.{0 if seconds >= 10 else 1}f} s")
        return parts


def greet(facts: Mapping[str, Any], now: datetime) -> list[str]:
    """Return the first lines of a chat."""
    model, is_offline = one_line(facts.get("model") or "", 60), facts.get("offline")
    name = f"the {_BUILT_IN}" if is_offline else model
    lines = [f"nanobot · {name}" if name else "nanobot", *([_ABOUT_OFFLINE] if is_offline else ())]
    if messages := facts.get("messages"):
        last = f", last {when(facts['last'], now)}" if facts.get("last") else ""
        count = pluralize(messages, "message")
        return [*lines, f"continuing: {count}{last} · /new for a fresh chat"]
    return [*lines, *([_TRY_OFFLINE if is_offline else _TRY] if facts else ())]


def when(moment: str, now: datetime) -> str:
    """Format a time in ISO format relative to `now`: `21:14`, `yesterday 21:14`, or its date."""
    try:
        then = datetime.fromisoformat(moment).astimezone(now.tzinfo)
    except (ValueError, OverflowError):
        return one_line(moment, 40)
    days = (now.date() - then.date()).days
    day = {0: "", 1: "yesterday "}.get(days, f"{then:%a %Y-%m-%d} ")
    return f"{day}{then:%H:%M}"


def _short(number: int) -> str:
    """Return `812`, `12.4k` or `1.2M`."""
    if number < 1_000:
        return str(number)
    return f"{number / 1_000:.1f}k" if number < 999_950 else f"{number / 1_000_000:.1f}M"
