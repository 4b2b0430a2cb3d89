"""The questions of a set-up, from the first one until the changes are confirmed.

Invariants: nothing is written before the person has confirmed it. A key is written only if
it is for the address that the model will have."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from importlib.metadata import EntryPoint, entry_points

from msgspec import Struct

from nanobot.app.setup.changes import ConfigPart, channel_changes, name_in
from nanobot.app.setup.model import ModelStep
from nanobot.app.setup.questions import (
    NoAnswer,
    PersonWithDefaults,
    SetupOptions,
    Step,
    ask_checked,
    in_words,
    server_options,
    setting_check,
    walk,
)
from nanobot.channel import Person, Setup, SetupRequest
from nanobot.clock import SystemClock, system_zone_name
from nanobot.config.changes import ConfigPlan, ExistingFiles, load_changed, plan
from nanobot.config.load import load_settings
from nanobot.config.model import ModelSettings
from nanobot.config.settings import AgentSettings, Settings
from nanobot.config.yamltext import ConfigChange
from nanobot.errors import ConfigError, NanobotError

_GROUP = "nanobot.channel_setups"
_CHECK_ZONE = setting_check(AgentSettings, "timezone", "this")
_CHANNELS = {"whatsapp": "WhatsApp"}


class Topic(Struct, frozen=True):
    """What a step is about: its name, and its title for people. A basic one is part of each first
    run."""

    name: str
    title: str
    is_basic: bool = False
    point: EntryPoint | None = None
    """The setup of a channel's adapter."""


def list_topics() -> Sequence[Topic]:
    """Return the topics in order: the model, the installed channels, the person."""
    points = sorted(entry_points(group=_GROUP), key=lambda point: point.name)
    channels = [
        Topic(one.name, _CHANNELS.get(one.name, one.name.capitalize()), point=one) for one in points
    ]
    you = Topic("you", "your name and time zone", is_basic=True)
    return [Topic("model", "the model", is_basic=True), *channels, you]


class Interview:
    """All questions until the changes are confirmed: the home, the steps, the confirmation. Given
    options replace their questions. A subclass decides which steps are wanted, shows the changes,
    and frees a running channel."""

    settings: Settings
    before: ExistingFiles
    clock: SystemClock
    _model: ModelStep
    """These are set when the home is known, in the first step."""

    def __init__(self, person: Person, options: SetupOptions) -> None:
        self.person, self.options = PersonWithDefaults(person), options
        self.attended = not options.non_interactive
        self._is_confirmed = False

    def find_zone(self) -> str:
        """Return the person's likely time zone, or an empty text."""
        return system_zone_name(os.environ)

    async def choose_home(self) -> None:
        """Choose the folder in the options."""

    def show_heading(self, text: str) -> None:
        """Show the heading of the next questions."""
        raise NotImplementedError

    async def is_wanted(self, topic: Topic) -> bool:
        """Return True if the person wants this step, which no option has answered."""
        raise NotImplementedError

    async def confirm(self, part: ConfigPart, planned: ConfigPlan) -> bool:
        """Show all changes, and ask the person to confirm them."""
        raise NotImplementedError

    def borrow(self, channel: str) -> AbstractAsyncContextManager[object]:
        """Free a channel from a running gateway while inside, to receive its messages here."""
        raise NotImplementedError

    async def run(self) -> tuple[ExistingFiles, ConfigPart] | None:
        """Return the previous files and the changes, or None if the person declines. Raises
        `NanobotError`."""
        steps: list[Step[ConfigPart]] = [self._begin]
        steps += (partial(self._take, one) for one in list_topics())
        *_, part = await walk(self.person, [*steps, self._confirm])
        return (self.before, part) if self._is_confirmed else None

    async def _begin(self, _: Sequence[ConfigPart]) -> ConfigPart:
        options = self.options
        await self.choose_home()
        try:
            self.settings = await asyncio.to_thread(load_settings, options.home)
        except ConfigError as error:
            raise NanobotError(
                f"the current configuration is not valid:\n{error.for_people()}",
                hint="Fix it, or move the file away to start over.",
            ) from None
        self.before = ExistingFiles.read(options.home, os.environ)
        self.clock = SystemClock(self.settings.agent.timezone)
        self._model = ModelStep(self.person, options, self.settings.model, self.before, self.clock)
        names_model = options.offline or server_options(options)
        if not (self.before.config or self.attended or names_model):
            hint = (
                "Add --model-name, --provider, or --base-url. To try nanobot without your own "
                "model, add --offline."
            )
            raise NanobotError("a model is required", hint=hint)
        return ConfigPart()

    async def _take(self, topic: Topic, _: Sequence[ConfigPart]) -> ConfigPart:
        """Run a step, if it is wanted. If it fails, the person keeps the answers of the others.
        Raises `NanobotError`."""
        if not (self._is_given(topic) or (self.attended and await self.is_wanted(topic))):
            return ConfigPart()
        while True:
            if self.attended:
                self.show_heading(topic.title[0].upper() + topic.title[1:])
            try:
                return await self._ask(topic)
            except NanobotError as error:
                if isinstance(error, NoAnswer) or not self.attended:
                    raise
                self.person.say(f"That did not work: {in_words(error)}")
                if not await self.person.confirm("Try this step again?"):
                    return ConfigPart()

    def _is_given(self, topic: Topic) -> bool:
        options = self.options
        if topic.name == "model":
            return bool(options.offline or server_options(options))
        if topic.name == "you":
            return bool(options.owner_name or options.timezone)
        return bool(options.channels.get(topic.name))

    def _ask(self, topic: Topic) -> Awaitable[ConfigPart]:
        if topic.point:
            return self._ask_channel(topic.point)
        return self._model.run() if topic.name == "model" else self._ask_person()

    async def _ask_channel(self, point: EntryPoint) -> ConfigPart:
        """Run the setup of a channel's adapter."""
        channel = self.settings.channels.get(point.name)
        request = SetupRequest(
            person=self.person,
            options=channel.options if channel else None,
            owners=self.settings.owner.get(point.name, ()),
            given=self.options.channels.get(point.name, {}),
            clock=self.clock,
            attended=self.attended,
            test=not self.options.no_test,
        )
        setup: Setup = await asyncio.to_thread(point.load)
        async with self.borrow(point.name):
            result = await setup(request)
        return channel_changes(point.name, result, self.before) if result else ConfigPart()

    async def _ask_person(self) -> ConfigPart:
        """Take name and time zone from the options, or ask for both."""
        options, present = self.options, self.settings.agent.timezone
        name, zone, known = options.owner_name, options.timezone, name_in(options.home)
        if not (name or zone):
            name = await self.person.ask("Your name (leave empty to skip)", known)
            usual = present or self.find_zone() or "UTC"
            zone = await ask_checked(self.person, "Your time zone", _CHECK_ZONE, usual)
        zone, name = _CHECK_ZONE(zone), " ".join(name.split())
        summary = (("you", name), ("time zone", zone))
        return ConfigPart(
            (ConfigChange(("agent", "timezone"), zone),) if zone not in ("", present) else (),
            summary=tuple((topic, value) for topic, value in summary if value),
            name=name if name != known else "",
        )

    async def _confirm(self, done: Sequence[ConfigPart]) -> ConfigPart:
        home, before = self.options.home, self.before
        part = before.new_in(sum(done, ConfigPart()))
        planned = plan(home, before, part)
        if planned.errors:
            problems = "\n".join(error.for_people() for error in planned.errors)
            raise NanobotError(
                f"nothing was changed, because the configuration would not be valid:\n{problems}"
            )
        if part.model_at:
            expect_key_at(load_changed(home, before, part).model, part.model_at)
        for warning in planned.warnings:
            self.person.say(f"Note: {warning}")
        self._is_confirmed = not self.attended or part.is_empty
        if not self._is_confirmed:
            self._is_confirmed = await self.confirm(part, planned)
        return part


def expect_key_at(model: ModelSettings, address: str) -> None:
    """Raise `NanobotError` if the model's key would be sent to another address."""
    if model.api_key and model.base_url != address:
        raise NanobotError(
            f"nothing was changed, because your key for {address} would go elsewhere",
            hint="The variable NANOBOT_MODEL__BASE_URL sets another address. Remove it first.",
        )
