"""The steps in their order: which are taken, and what they found out so far.

What the command line says already is not asked for. A first run goes through all of them, a later
one asks which.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from nanobot.cli.onboard.channels import names, set_up
from nanobot.cli.onboard.model import ask_model, from_environment, given_model
from nanobot.cli.onboard.parts import Before, Part
from nanobot.cli.onboard.people import Unanswered
from nanobot.cli.onboard.you import ask_you, given_you
from nanobot.cli.show import indent, table
from nanobot.clock import SystemClock
from nanobot.errors import NanobotError

if TYPE_CHECKING:
    from nanobot.cli.onboard.options import OnboardOptions
    from nanobot.cli.onboard.people import Guide
    from nanobot.config.settings import Settings


class Steps:
    """The steps for one home; `settings` and `before` are as they are before the first."""

    def __init__(
        self, person: Guide, options: OnboardOptions, settings: Settings, before: Before
    ) -> None:
        self._person, self._options = person, options
        self._settings, self._before = settings, before
        self._clock = SystemClock(settings.agent.timezone)
        self._channels = names()
        self._given = _given_channels(options)
        self._parts: dict[str, Part] = {}
        """What each step found out when it was last taken: half of an earlier answer, such as the
        address of another server, must not stay beneath a later one."""
        self._taken: set[str] = set()
        """What the command line said, and was taken already."""

    async def all(self) -> Part:
        """What is to be written in the end. Raises `NanobotError`."""
        first = not self._before.config
        if self._options.attended and first:
            await self._everything()
            return self._so_far
        if first and not self._options.about_model:
            hint = "Say --model-name, --base-url or, to try nanobot out, --offline."
            raise NanobotError("which model shall answer?", hint=hint)
        await self._take_given()
        if self._options.attended:
            await self._chosen()
        return self._so_far

    async def changed(self) -> Part:
        """The same after a person has chosen what to say otherwise."""
        await self._chosen()
        return self._so_far

    @property
    def _so_far(self) -> Part:
        return sum(self._parts.values(), Part())

    async def _take_given(self) -> None:
        if self._options.about_model:
            await self._attempt(self._model)
        for name in self._given:
            await self._attempt(partial(self._channel, name))
        if self._options.about_owner:
            await self._attempt(self._you)

    async def _everything(self) -> None:
        """One after the other, less what was given; each channel only if it is wanted."""
        if not self._is_done("model"):
            await self._attempt(self._model)
        for name in self._channels:
            if self._is_done(name):
                continue
            if name in self._given:
                await self._attempt(partial(self._channel, name))
                continue
            self._person.head(titled(name))
            present = self._settings.channels.get(name)
            anew = " anew" if present is not None and present.enabled else ""
            if await self._person.confirm(f"Set {titled(name)} up{anew}?", default=False):
                await self._attempt(partial(self._channel, name, headed=True))
        if not self._is_done("you"):
            await self._attempt(self._you)

    def _is_done(self, topic: str) -> bool:
        """Whether that was given, and taken already."""
        return topic in self._taken

    async def _chosen(self) -> None:
        """What is chosen from a menu, until it is enough."""
        channels = [titled(name) for name in self._channels]
        menu = ["the model", *channels, "you", "all of it", "nothing more"]
        while True:
            if told := self._so_far.told:
                self._person.say("\nSo far:\n" + indent(table(told, 2)).rstrip("\n"))
            at = await self._person.choose("\nWhat shall be changed?", menu, len(menu) - 1)
            beyond = at - 1 - len(channels)
            if at == 0:
                await self._attempt(self._model)
            elif beyond < 0:
                await self._attempt(partial(self._channel, self._channels[at - 1]))
            elif beyond == 0:
                await self._attempt(self._you)
            else:
                if beyond == 1:
                    await self._everything()
                return

    async def _attempt(self, step: Callable[[], Awaitable[None]]) -> None:
        """Take a step. Where it fails, a person keeps the answers of the others."""
        while True:
            try:
                return await step()
            except Unanswered:
                raise
            except NanobotError as error:
                if not self._options.attended:
                    raise
                self._person.say(f"That did not work: {error.for_people()}")
                if not await self._person.confirm("Go through this step again?"):
                    return None

    async def _model(self) -> None:
        options, present = self._options, self._settings.model
        if options.about_model and not self._is_done("model"):
            if options.test and not options.offline:  # else there is nothing to be said
                self._head("The model")
            self._taken.add("model")
            found = given_model(self._person, options, present, self._before, self._clock)
        else:
            found = ask_model(self._person, present, self._before, self._clock, test=options.test)
        self._parts["model"] = await found

    async def _channel(self, name: str, *, headed: bool = False) -> None:
        given = self._given.get(name, {}) if not self._is_done(name) else {}
        if given:
            self._taken.add(name)
        self._expect_token(name, given)
        if not headed:
            self._head(titled(name))
        part = await set_up(
            name,
            self._person,
            self._settings,
            self._before,
            self._clock,
            given,
            attended=self._options.attended,
            test=self._options.test,
        )
        if not part.is_empty:  # else the person left it as it is
            self._parts[name] = part

    def _expect_token(self, name: str, given: Mapping[str, str]) -> None:
        """Raise where Telegram is set up by nobody and without a token."""
        if self._options.attended or name != "telegram" or "token" in given:
            return
        if name not in self._settings.channels:
            hint = "Name the variable that holds it with --telegram-token-env."
            raise NanobotError("Telegram needs the token of a bot", hint=hint)

    async def _you(self) -> None:
        zone = self._settings.agent.timezone
        if self._options.about_owner and not self._is_done("you"):
            self._taken.add("you")
            self._parts["you"] = given_you(self._options, zone)
        else:
            said = self._parts.get("you", Part()).basics
            self._parts["you"] = await ask_you(self._person, self._options.home, zone, said)

    def _head(self, text: str) -> None:
        if self._options.attended:
            self._person.head(text)


def titled(name: str) -> str:
    """A channel's name as it is written."""
    return {"whatsapp": "WhatsApp"}.get(name, name.capitalize())


def _given_channels(options: OnboardOptions) -> Mapping[str, Mapping[str, str]]:
    """What the command line says of channels, by their names and the keys of their settings."""
    given: dict[str, Mapping[str, str]] = {}
    if options.about_telegram:
        name = options.telegram_token_env
        known = {
            "token": from_environment(name) if name else "",
            "base_url": options.telegram_base_url,
            "owner": options.owner_telegram,
        }
        given["telegram"] = {key: value for key, value in known.items() if value}
    if options.owner_whatsapp:
        given["whatsapp"] = {"owner": options.owner_whatsapp}
    return given
