"""How many tokens the model takes: what its server says, or what the person does.

Servers on one's own machine often cut what is more, silently, so there it is never more than they
say, and little where they say nothing.
"""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from nanobot.config.model import LEAST_PROMPT_TOKENS, SMALL_WINDOW, ModelSettings
from nanobot.config.values import is_official
from nanobot.providers.discovery import Window, make_larger, told_window

if TYPE_CHECKING:
    from nanobot.cli.onboard.candidate import Candidate
    from nanobot.cli.onboard.people import Guide
    from nanobot.clock import Clock

_SECONDS = 5.0
_LEAST_ANSWER = 1_000
_SMALLEST = (LEAST_PROMPT_TOKENS + _LEAST_ANSWER) * 8 // 7
_OLLAMA = "Ollama"
_MAKING_SECONDS = 60.0
_USUAL_THERE = 4_096
"""What servers for one's own machine take where nobody chose."""
_COMFORTABLE = 16_384


async def ask_window(
    person: Guide, wanted: Candidate, present: ModelSettings, clock: Clock
) -> Candidate:
    """The model with its window, asked for where its server does not say (0: the default); perhaps
    a variant of it that takes more."""
    if is_official(wanted.base_url):
        return wanted
    while True:
        told = await _told(wanted, clock)
        small = told.now < SMALL_WINDOW and (told.now or told.server == _OLLAMA)
        if small:
            person.say(_too_small(told))
        if small and (larger := await _enlarged(person, wanted, told, clock)):
            wanted = larger
            continue
        if small and told.now and await _mended(person, told):
            continue
        if told.now >= _SMALLEST:
            chosen = _set_by_hand(wanted, present)
            window = _taken(person, told, chosen, is_known=bool(small))
        else:
            window = await _typed(person, wanted, told, present)
        return replace(wanted, window=window)


async def _enlarged(
    person: Guide, wanted: Candidate, told: Window, clock: Clock
) -> Candidate | None:
    """A variant of the model with room to talk, where the server can make one and the person wants
    it."""
    tokens = min(_COMFORTABLE, told.most)
    if told.server != _OLLAMA or tokens < SMALL_WINDOW:
        return None
    asked = (
        f"Make a variant of {wanted.name} in Ollama that takes {tokens:,}? It needs no download."
    )
    if not await person.confirm(asked):
        return None
    name = await make_larger(
        wanted.base_url, wanted.name, wanted.key, clock, tokens, seconds=_MAKING_SECONDS
    )
    if not name:
        person.say(f"Ollama could not make it.{_how(told)}")
        return None
    person.say(f"{name} is there, and is what nanobot will use.")
    return replace(wanted, name=name)


def _too_small(told: Window) -> str:
    now = f"only {told.now:,} tokens" if told.now else "4,096 tokens unless told otherwise"
    return (
        f"WARNING: {told.server or 'The server'} takes {now}. It cuts off the rest silently, so"
        f" nanobot forgets within a few messages. {_COMFORTABLE:,} leave room to talk; below"
        f" {SMALL_WINDOW:,} nanobot works with few tools."
    )


async def given_window(
    person: Guide, wanted: Candidate, present: ModelSettings, clock: Clock
) -> int:
    """The window of a model that the command line names, as far as its server says; 0 for the
    default."""
    if is_official(wanted.base_url):
        return 0
    told = await _told(wanted, clock)
    if told.now >= _SMALLEST:
        if told.now < SMALL_WINDOW:
            person.say(_too_small(told))
        return _taken(person, told, 0, is_known=False)
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


def _taken(person: Guide, told: Window, chosen: int, *, is_known: bool) -> int:
    """`is_known`: how to raise it was said already."""
    if 0 < chosen < told.now:
        person.say(f"{told.server} takes {told.now:,} tokens; the {chosen:,} that are set stay.")
        return chosen
    more = not is_known and told.now < _COMFORTABLE
    person.say(f"{told.server} takes {told.now:,} tokens.{_how(told) if more else ''}")
    return told.now


async def _mended(person: Guide, told: Window) -> bool:
    """Whether the person made the server take more."""
    least = f" It needs {_SMALLEST:,} at the least." if told.now < _SMALLEST else ""
    person.say(f"{least}{_how(told)}".strip())
    return await person.confirm("Look again, once that is changed?")


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
