"""How many tokens the model takes: what its server says, or what the person does.

Servers on one's own machine often cut what is more, silently, so there it is never more than they
say, and little where they say nothing.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from nanobot.config.model import LEAST_PROMPT_TOKENS, SAFETY_TOKENS, ModelSettings
from nanobot.config.values import is_official
from nanobot.providers.windows import Window, told_window

if TYPE_CHECKING:
    from nanobot.cli.onboard.candidate import Candidate
    from nanobot.cli.onboard.people import Guide
    from nanobot.clock import Clock

_SECONDS = 5.0
_LEAST_ANSWER = 1_000
_SMALLEST = LEAST_PROMPT_TOKENS + SAFETY_TOKENS + _LEAST_ANSWER
_USUAL_THERE = 4_096
"""What servers for one's own machine take where nobody chose."""
_COMFORTABLE = 16_384


async def ask_window(person: Guide, wanted: Candidate, present: ModelSettings, clock: Clock) -> int:
    """The window of a model, asked for where its server does not say; 0 for the default."""
    if is_official(wanted.base_url):
        return 0
    while True:
        told = await _told(wanted, clock)
        if told.now >= _SMALLEST:
            return _taken(person, told, _set_by_hand(wanted, present))
        if told.now and await _mended(person, told):
            continue
        return await _typed(person, wanted, told, present)


async def given_window(
    person: Guide, wanted: Candidate, present: ModelSettings, clock: Clock
) -> int:
    """The window of a model that the command line names, as far as its server says; 0 for the
    default."""
    if is_official(wanted.base_url):
        return 0
    told = await _told(wanted, clock)
    if told.now >= _SMALLEST:
        return _taken(person, told, 0)
    if is_near(wanted.base_url):
        said = f"takes only {told.now:,} tokens" if told.now else "does not say how much it takes"
        person.say(
            f"Note: {told.server or 'the server'} {said}, and may cut what is more, silently."
            f" --context-window says how much it is to get ({present.context_window:,} tokens now)."
            f"{_how(told)}"
        )
    return 0


def is_near(base_url: str) -> bool:
    """Whether a server is likely somebody's own: on this machine, or beside it."""
    host = urlsplit(base_url).hostname or ""
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return "." not in host or host.endswith((".local", ".lan", ".internal", ".home.arpa"))


async def _told(wanted: Candidate, clock: Clock) -> Window:
    return await told_window(wanted.base_url, wanted.name, wanted.key, clock, seconds=_SECONDS)


def _set_by_hand(wanted: Candidate, present: ModelSettings) -> int:
    """The window that is set for this very model; 0 for none."""
    same = (wanted.base_url, wanted.name) == (present.base_url, present.name)
    return present.context_window if same and "context_window" in present.model_fields_set else 0


def _taken(person: Guide, told: Window, chosen: int) -> int:
    if 0 < chosen < told.now:
        person.say(f"{told.server} takes {told.now:,} tokens; the {chosen:,} that are set stay.")
        return chosen
    more = told.now < told.most or told.now < _COMFORTABLE
    person.say(f"{told.server} takes {told.now:,} tokens.{_how(told) if more else ''}")
    return told.now


async def _mended(person: Guide, told: Window) -> bool:
    """Whether the person made the server take more."""
    said = f"{told.server} takes {told.now:,} tokens, and nanobot needs {_SMALLEST:,} at the least."
    person.say(f"{said}{_how(told)}")
    return await person.confirm("Look again, once that is done?")


async def _typed(person: Guide, wanted: Candidate, told: Window, present: ModelSettings) -> int:
    near = is_near(wanted.base_url)
    default = _set_by_hand(wanted, present) or (_USUAL_THERE if near else present.context_window)
    if told.most:
        default = min(default, told.most)
    if near:
        person.say(
            f"{told.server or 'The server'} does not say how many tokens it takes. Type what it was"
            f" started with: most cut what is more, silently. {_USUAL_THERE:,} is what many begin"
            f" with; {_COMFORTABLE:,} or more leave room to talk.{_how(told)}"
        )
    while True:
        asked = "Tokens that it takes in all (its context window)"
        answer = await person.ask(asked, str(max(default, _SMALLEST)))
        digits = answer.replace(",", "").replace(".", "").replace("_", "")
        if digits.isdecimal() and int(digits) >= _SMALLEST:
            return int(digits)
        person.say(f"Please type a number from {_SMALLEST:,}; with less nanobot cannot work.")


def _how(told: Window) -> str:
    most = f" The model could take {told.most:,}." if told.most > told.now else ""
    return f"{most} {told.to_raise}" if told.to_raise else ""
