"""Questions to a person, the way back to earlier ones, and the options that answer some."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from nanobot.channel import Person, WentBack
from nanobot.errors import NanobotError
from nanobot.providers.known_servers import KnownProvider
from nanobot.validation import Checked, Invalid, SecretStr, build

T = TypeVar("T")

_OF_A_SERVER = (
    "provider", "model_name", "base_url", "context_window", "api_key_env", "api_key_stdin",
)  # fmt: skip


class SetupOptions(Struct):
    """How a set-up runs, and the answers that are known before it. Unset ones are asked for, or
    keep their values if it is `non_interactive`. `channels` has settings by channel and key.
    `no_test`: try nothing out."""

    home: Path
    non_interactive: bool = False
    no_test: bool = False
    offline: bool = False
    provider: str = ""
    model_name: str = ""
    base_url: str = ""
    context_window: int = 0
    api_key_env: str = ""
    api_key_stdin: bool = False
    owner_name: str = ""
    timezone: str = ""
    channels: Mapping[str, Mapping[str, str]] = {}


def server_options(options: SetupOptions) -> list[str]:
    """Return the given command-line options about a model's server."""
    return [f"--{name.replace('_', '-')}" for name in _OF_A_SERVER if getattr(options, name)]


def read_key(options: SetupOptions, named: KnownProvider | None) -> tuple[str, str]:
    """Return the key of the command line, and its variable: the one in the options, or the
    provider's usual one."""
    if options.api_key_stdin:
        if not (key := sys.stdin.readline().strip()):
            raise NanobotError(
                "there is no API key on standard input", hint="Send the key as one line."
            )
        return key, ""
    usual = named.key_variable if named and named.key_variable in os.environ else ""
    variable = options.api_key_env or usual
    return from_environment(variable) if variable else "", variable


def from_environment(name: str) -> str:
    """Return the secret in an environment variable. Raises `NanobotError` if it is empty."""
    value = os.environ.get(name, "").strip()
    if not value:
        raise NanobotError(
            f"the variable {name} is not set, or is empty", hint=f"Set it with `export {name}=…`."
        )
    return value


class NoAnswer(NanobotError):
    """A required question got no answer."""


async def ask_checked(
    person: Person,
    question: str,
    check: Callable[[str], T],
    default: str = "",
    *,
    secret: bool = False,
) -> T:
    """Ask until `check` accepts the answer, and return its result. After an error, show it and
    repeat only this question. Raises `NoAnswer`."""
    while True:
        try:
            return check(await person.ask(question, default, secret=secret))
        except NoAnswer:
            raise
        except NanobotError as error:
            text = error.for_people()
            person.say(text[:1].upper() + text[1:])


def setting_check(section: type[Checked], key: str, what: str) -> Callable[[str], str]:
    """Return a check that applies the configuration's rules for a key. Its errors name the key
    `what`."""

    def check(text: str) -> str:
        try:
            value = getattr(build(section, {key: text}), key)
        except Invalid as error:
            (fault, *_) = error.faults
            raise NanobotError(f"{what} {fault.message}", hint=fault.hint) from None
        return value.get_secret_value() if isinstance(value, SecretStr) else str(value)

    return check


def in_words(error: NanobotError) -> str:
    """Return an error's text without the names of settings, which the person has not seen."""
    text = error.for_people().replace("model.api_key", "the key")
    return text.replace("model.base_url", "the URL").replace("model.name", "the model's name")


A = TypeVar("A", str, bool)
Step = Callable[[Sequence[T]], Awaitable[T]]
"""A step is called with the results of the steps before it."""


class PersonWithDefaults:
    """A person whose earlier answers are the defaults if a step runs again. A list starts at the
    last choice. Secrets are not offered again, because the next server may be another one."""

    def __init__(self, person: Person) -> None:
        self._person = person
        self._answers: dict[str, str | bool] = {}
        self._had: dict[str, str | bool] = {}
        self.asked = 0
        """The number of answered questions in this step."""

    def begin(self) -> None:
        """Begin a step, possibly again."""
        self._had, self.asked = dict(self._answers), 0

    def say(self, text: str) -> None:
        """See `nanobot.channel.Person`, here and below."""
        self._person.say(text)

    async def ask(self, question: str, default: str = "", *, secret: bool = False) -> str:
        if not secret:
            default = str(self._had.get(question, default))
        return self._keep(question, await self._person.ask(question, default, secret=secret))

    async def confirm(self, question: str, *, default: bool = True) -> bool:
        default = bool(self._had.get(question, default))
        return self._keep(question, await self._person.confirm(question, default=default))

    async def choose(self, question: str, choices: Sequence[str], default: int = 0) -> int:
        last = str(self._answers.get(question, ""))
        default = choices.index(last) if last in choices else default
        at = await self._person.choose(question, choices, default)
        self._keep(question, choices[at])
        return at

    def _keep(self, question: str, answer: A) -> A:
        self._answers[question] = answer
        self.asked += 1
        return answer


async def walk(person: PersonWithDefaults, steps: Sequence[Step[T]]) -> list[T]:
    """Run the steps and return their results. Going back leads to the first question of the step,
    and from there to the previous step."""
    done: list[tuple[T, int]] = []
    while len(done) < len(steps):
        person.begin()
        try:
            result = await steps[len(done)]([result for result, _ in done])
            done.append((result, person.asked))
        except WentBack:
            asked = person.asked
            while not asked and done:
                _, asked = done.pop()
            if not asked:
                person.say("This is the first question.")
    return [result for result, _ in done]
