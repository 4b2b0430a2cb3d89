"""The context window of a model, and if it calls tools, as the model step finds out.

Servers on one's own machine often cut off a prompt that exceeds their window, silently. So the
window is never larger than the server reports, and a server that reports none is assumed to take
little. The person is told of each assumption, with the option that sets the number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from nanobot.cli.onboard.candidate import ModelCandidate
from nanobot.cli.onboard.people import ask_checked
from nanobot.config.changing import ExistingFiles
from nanobot.config.model import LEAST_PROMPT_TOKENS, SMALL_WINDOW, ModelSettings
from nanobot.config.values import is_official
from nanobot.config.yamltext import value_at
from nanobot.errors import NanobotError
from nanobot.providers.catalogue import KnownProvider
from nanobot.providers.dialect import is_near
from nanobot.providers.discovery import ModelFacts, create_larger_variant, model_facts

if TYPE_CHECKING:
    from nanobot.channel import Person

_ASKING_SECONDS = 5.0
_MAKING_SECONDS = 60.0
_OLLAMA = "Ollama"
_SMALLEST = (LEAST_PROMPT_TOKENS + 1_000) * 8 // 7
"""The smallest window that nanobot can work with."""
_ASSUMED = 4_096
"""The window of servers for one's own machine unless somebody chose another."""
_COMFORTABLE = 16_384
_DEFAULT = ModelSettings().context_window


def tokens_taken(facts: ModelFacts) -> int:
    """Return the window as far as it is known, or 0. A server of one's own may have been started
    with less than the model could take."""
    return facts.now or (0 if facts.server else facts.most)


def no_tools_text(facts: ModelFacts) -> str:
    """Return what it means that a model cannot call tools, in one sentence."""
    where = facts.server or "its server"
    return (
        f"{where} reports that this model can't call tools. nanobot then reads tool calls from its"
        " text, and small models often get them wrong"
    )


def _begun(name: str) -> str:
    """Return a name as it begins a sentence, unless it is written small, as llama.cpp is."""
    return "The server" if name == "the server" else name


class WindowStep(Struct, frozen=True):
    """Finds out the context window of a model, with the help of the person if one is there
    (`attended`). `present` and `before` are the settings so far. Without `asks_server` only the
    options and the person count."""

    person: Person
    present: ModelSettings
    before: ExistingFiles
    attended: bool
    asks_server: bool

    async def run(self, wanted: ModelCandidate, known: KnownProvider | None) -> ModelCandidate:
        """Return the model with its window, or a variant of it that has a larger one. `known` is
        who runs the server. Raises `NanobotError` if the window is too small."""
        facts = await self._facts(wanted, known)
        name = facts.server or "the server"
        near = is_near(wanted.base_url) and (not known or known.is_local)
        takes = tokens_taken(facts)
        self._warn(facts, takes)
        if variant := await self._larger_variant(wanted, facts, takes):
            return await self.run(variant, known)
        if 0 < takes < _SMALLEST:
            raise NanobotError(
                f"{_begun(name)} takes only {takes:,} tokens, and nanobot needs {_SMALLEST:,}",
                hint=f"{facts.to_raise or 'Choose another model.'} {_COMFORTABLE:,} are enough.",
            )
        if wanted.window:
            return await self._bounded(wanted, facts, takes)
        chosen = self._chosen(wanted)
        if takes:
            return self._reported(wanted, takes, chosen, _begun(name) if near else wanted.name)
        if chosen:
            return replace(wanted, window=chosen)
        return await self._unknown(wanted, name) if near else replace(wanted, window=_DEFAULT)

    def _reported(
        self, wanted: ModelCandidate, takes: int, chosen: int, name: str
    ) -> ModelCandidate:
        """Return the window that the server reports, or the `chosen` one if that is smaller."""
        if takes >= SMALL_WINDOW:  # else a warning has named it
            self.person.say(f"{name} takes {takes:,} tokens.")
        if chosen > takes:
            self.person.say(f"model.context_window was {chosen:,} and becomes {takes:,}.")
        return replace(wanted, window=min(chosen or takes, takes))

    async def _facts(self, wanted: ModelCandidate, known: KnownProvider | None) -> ModelFacts:
        if not self.asks_server or is_official(wanted.base_url):
            return ModelFacts()
        return await model_facts(
            wanted.base_url, wanted.name, wanted.key, seconds=_ASKING_SECONDS, provider=known
        )

    async def _larger_variant(
        self, wanted: ModelCandidate, facts: ModelFacts, takes: int
    ) -> ModelCandidate | None:
        """Offer a variant of a model of Ollama's that leaves room to talk, or takes as much as the
        options say."""
        tokens = min(wanted.window or _COMFORTABLE, facts.most)
        is_small = facts.server == _OLLAMA and takes < (wanted.window or SMALL_WINDOW)
        if not (is_small and self.attended) or tokens < SMALL_WINDOW:
            return None
        instead = f" instead of {takes:,}" if takes else ""
        asked = f"Make a variant of {wanted.name} that takes {tokens:,} tokens{instead}?"
        if not await self.person.confirm(f"{asked} It needs no download."):
            return None
        name = await create_larger_variant(
            wanted.base_url, wanted.name, wanted.key, tokens, seconds=_MAKING_SECONDS
        )
        self.person.say(f"{name} is there." if name else "Ollama could not make it.")
        return replace(wanted, name=name) if name else None

    def _warn(self, facts: ModelFacts, takes: int) -> None:
        """Warn of a small window and of missing tool calls."""
        if _SMALLEST <= takes < SMALL_WINDOW:
            self.person.say(
                f"WARNING: {facts.server or 'The server'} takes only {takes:,} tokens, so nanobot"
                f" works with few tools and forgets within a few messages. {_COMFORTABLE:,} leave"
                f" room to talk. {facts.to_raise}".rstrip()
            )
        if facts.tools is False:
            self.person.say(f"WARNING: {no_tools_text(facts)}. {facts.for_tools}")

    async def _bounded(
        self, wanted: ModelCandidate, facts: ModelFacts, takes: int
    ) -> ModelCandidate:
        """Return the window of the options, or the server's if that is smaller."""
        if wanted.window < _SMALLEST:
            text = f"a context window of {wanted.window:,} tokens is too small"
            raise NanobotError(text, hint=f"nanobot needs {_SMALLEST:,}.")
        if not 0 < takes < wanted.window:
            return wanted
        self.person.say(
            f"WARNING: --context-window is {wanted.window:,}, but {facts.server or 'the server'}"
            f" takes {takes:,} tokens. {facts.to_raise}"
        )
        asked = f"Use {wanted.window:,} all the same?"
        if self.attended and await self.person.confirm(asked, default=False):
            return wanted
        insist = "" if self.attended else " With --no-test your own number is written."
        self.person.say(f"{takes:,} is used.{insist}")
        return replace(wanted, window=takes)

    def _chosen(self, wanted: ModelCandidate) -> int:
        """Return the window that is configured for this very model, or 0."""
        present = self.present
        is_same = (wanted.base_url, wanted.name) == (present.base_url, present.name)
        written = value_at(self.before.config, ("model", "context_window"))
        is_set = written is not None or present.context_window != _DEFAULT
        return present.context_window if is_same and is_set else 0

    async def _unknown(self, wanted: ModelCandidate, name: str) -> ModelCandidate:
        """Ask the person for the window. Raises `NanobotError`."""
        few = f"below {SMALL_WINDOW:,} nanobot works with few tools"
        unknown = f"how many tokens {name} takes"
        if not (self.attended and self.asks_server):
            self.person.say(
                f"WARNING: it isn't known {unknown}, so {_ASSUMED:,} are assumed, and {few}. Give"
                f" the number that it was started with: --context-window {_COMFORTABLE}"
            )
            return replace(wanted, window=_ASSUMED)
        self.person.say(
            f"It isn't known {unknown}, and it may cut off the rest. Give the number that it was"
            f" started with: {_ASSUMED:,} with many, but {few}; {_COMFORTABLE:,} or more leave room"
            " to talk."
        )
        asked = "Tokens that it takes in all (its context window)"
        window = await ask_checked(self.person, asked, _checked_window, str(_ASSUMED))
        return replace(wanted, window=window)


def _checked_window(text: str) -> int:
    digits = text.replace(",", "")
    if not digits.isdecimal() or int(digits) < _SMALLEST:
        raise NanobotError(f"it must be a number from {_SMALLEST:,}", hint="Less is too little.")
    return int(digits)
