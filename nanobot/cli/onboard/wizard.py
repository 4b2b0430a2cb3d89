"""The flow of onboarding: ask, show the changes, confirm, write, sign in to channels, and send the
model a first message.

Invariant: nothing is written before the person has confirmed it. Secrets are only written to
secrets.env. Other settings in config.yaml keep every byte."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from itertools import filterfalse

from msgspec import Struct

from nanobot.channel import Person, Setup, SetupRequest
from nanobot.cli.agent import replies
from nanobot.cli.channels import borrow_channel, login
from nanobot.cli.command import WrongUsage, log_errors_only, path_of, print_json, print_text, table
from nanobot.cli.config import format_diff
from nanobot.cli.gateway import open_client
from nanobot.cli.onboard.changes import ConfigPart, channel_changes, name_in, write
from nanobot.cli.onboard.model import ModelStep, from_environment, server_options
from nanobot.cli.onboard.people import (
    Answers,
    NoAnswer,
    PersonWithDefaults,
    Step,
    ask_checked,
    in_words,
    setting_check,
    walk,
)
from nanobot.cli.service import runs_systemd
from nanobot.cli.status import of_gateway
from nanobot.clock import SystemClock, system_zone_name
from nanobot.config import command_for
from nanobot.config.changes import ExistingFiles, plan
from nanobot.config.load import CONFIG_FILE, load_settings
from nanobot.config.settings import AgentSettings, Settings
from nanobot.config.yamltext import ConfigChange
from nanobot.errors import ConfigError, NanobotError, NoGateway
from nanobot_cli.text import one_line
from nanobot_cli.wire import DEFAULT_SESSION, AgentMessage, Reading, Reply

_GROUP = "nanobot.channel_setups"
_INTRODUCTION = """\
This sets up a model, your chat apps, and your name. Nothing is saved until you confirm. Type < \
to go back, or press Ctrl-C to cancel."""
_HELLO = "Hello!"
_CHECK_ZONE = setting_check(AgentSettings, "timezone", "this")


def onboard(options: argparse.Namespace) -> int:
    """`nanobot onboard`. Return 1 if the first reply failed. Raises `NanobotError`, in most cases
    before anything is written."""
    log_errors_only()
    if options.offline and (named := server_options(options)):
        hint = "The built-in model has no server. Leave out one of the options."
        raise WrongUsage(f"--offline cannot be combined with {named[0]}", hint=hint)
    if options.api_key_env and options.api_key_stdin:
        raise WrongUsage("--api-key-env cannot be combined with --api-key-stdin")
    attended = not options.non_interactive
    person = Answers(attended=attended)
    try:
        answered = asyncio.run(Interview(Answers(attended=attended, back=True), options).run())
    except KeyboardInterrupt:
        sys.stderr.write("\nCanceled. Nothing was changed.\n")
        raise
    if answered is None:
        return 0
    before, part = answered
    if part.is_empty:
        person.say("Nothing to change.")
    else:
        write(options.home, before, part)
        person.say(f"Saved in {options.home}.")
    return _finish(person, options, part)


class OnboardStep(Struct, frozen=True):
    """One step. `title` is its topic, for people. A basic step is part of each first run. The
    answers of a `given` one are on the command line."""

    name: str
    title: str
    ask: Callable[[], Awaitable[ConfigPart]]
    is_basic: bool = False
    given: bool = False


class Interview:
    """All questions until the changes are confirmed: the home, the steps, the confirmation. The
    person's choice of folder replaces the home of the options. Given options replace their
    questions."""

    _settings: Settings
    _before: ExistingFiles
    _clock: SystemClock
    _model: ModelStep
    """These are set when the home is known, after the first question."""

    def __init__(self, person: Person, options: argparse.Namespace) -> None:
        self._person, self._options = PersonWithDefaults(person), options
        self._attended = not options.non_interactive
        self._is_confirmed = False
        is_chosen = options.given_home or os.environ.get("NANOBOT_HOME")
        is_there = (options.home / CONFIG_FILE).exists()
        self._asks_home = self._attended and not (is_chosen or is_there)

    async def run(self) -> tuple[ExistingFiles, ConfigPart] | None:
        """Return the previous files and the changes, or None if the person declines. Raises
        `NanobotError`."""
        if self._attended:
            self._person.say(_INTRODUCTION)
        steps: list[Step[ConfigPart]] = [self._home]
        steps += (partial(self._take, one) for one in self._steps())
        *_, part = await walk(self._person, [*steps, self._confirm])
        return (self._before, part) if self._is_confirmed else None

    def _steps(self) -> list[OnboardStep]:
        """Return all steps in order: the model, the installed channels, the person."""
        options = self._options
        names_model = bool(options.offline or server_options(options))
        ask_model = lambda: self._model.run()  # noqa: E731, PLW0108 - set when the home is known
        steps = [OnboardStep("model", "the model", ask_model, True, names_model)]
        for point in sorted(entry_points(group=_GROUP), key=lambda point: point.name):
            title = "WhatsApp" if point.name == "whatsapp" else point.name.capitalize()
            given = _channel_options(options, point.name)
            ask = partial(self._ask_channel, point, given)
            steps.append(OnboardStep(point.name, title, ask, given=bool(given)))
        names_person = bool(options.owner_name or options.timezone)
        you = "your name and time zone"
        return [*steps, OnboardStep("you", you, self._ask_person, True, names_person)]

    async def _home(self, _: Sequence[ConfigPart]) -> ConfigPart:
        options = self._options
        if self._asks_home:
            asked = "The folder for nanobot's data"
            options.home = path_of(await self._person.ask(asked, str(options.home)))
        try:
            self._settings = load_settings(options.home)
        except ConfigError as error:
            raise NanobotError(
                f"the current configuration is not valid:\n{error.for_people()}",
                hint="Fix it, or move the file away to start over.",
            ) from None
        self._before = ExistingFiles.read(options.home, os.environ)
        self._clock = SystemClock(self._settings.agent.timezone)
        self._model = ModelStep(
            self._person, options, self._settings.model, self._before, self._clock
        )
        names_model = options.offline or server_options(options)
        if not (self._before.config or self._attended or names_model):
            hint = (
                "Add --model-name, --provider, or --base-url. To try nanobot without your own "
                "model, add --offline."
            )
            raise NanobotError("a model is required", hint=hint)
        return ConfigPart()

    async def _take(self, step: OnboardStep, _: Sequence[ConfigPart]) -> ConfigPart:
        """Run a step, if it is wanted. If it fails, the person keeps the answers of the others.
        Raises `NanobotError`."""
        if not (step.given or (self._attended and await self._is_wanted(step))):
            return ConfigPart()
        while True:
            if self._attended:
                _print_heading(self._person, step.title[0].upper() + step.title[1:])
            try:
                return await step.ask()
            except NanobotError as error:
                if isinstance(error, NoAnswer) or not self._attended:
                    raise
                self._person.say(f"That did not work: {in_words(error)}")
                if not await self._person.confirm("Try this step again?"):
                    return ConfigPart()

    async def _is_wanted(self, step: OnboardStep) -> bool:
        if step.is_basic and not self._before.config:
            return True
        is_there = step.is_basic or step.name in self._settings.channels
        question = f"Change {step.title}?" if is_there else f"Set up {step.title}?"
        return await self._person.confirm(question, default=False)

    async def _ask_channel(self, point: EntryPoint, given: dict[str, str]) -> ConfigPart:
        """Run the setup of a channel's adapter."""
        channel = self._settings.channels.get(point.name)
        request = SetupRequest(
            person=self._person,
            options=channel.options if channel else None,
            owners=self._settings.owner.get(point.name, ()),
            given=given,
            clock=self._clock,
            attended=self._attended,
            test=not self._options.no_test,
        )
        setup: Setup = point.load()
        with ExitStack() as stack:
            with suppress(NoGateway):  # free the channel, to receive its messages here
                stack.enter_context(borrow_channel(self._settings.home, point.name))
            result = await setup(request)
        return channel_changes(point.name, result, self._before) if result else ConfigPart()

    async def _ask_person(self) -> ConfigPart:
        """Take name and time zone from the options, or ask for both."""
        options, present = self._options, self._settings.agent.timezone
        name, zone, known = options.owner_name, options.timezone, name_in(options.home)
        if not (name or zone):
            name = await self._person.ask("Your name (Enter to skip)", known)
            usual = present or system_zone_name(os.environ) or "UTC"
            zone = await ask_checked(self._person, "Your time zone", _CHECK_ZONE, usual)
        zone, name = _CHECK_ZONE(zone), " ".join(name.split())
        summary = (("you", name), ("time zone", zone))
        return ConfigPart(
            (ConfigChange(("agent", "timezone"), zone),) if zone not in ("", present) else (),
            summary=tuple((topic, value) for topic, value in summary if value),
            name=name if name != known else "",
        )

    async def _confirm(self, done: Sequence[ConfigPart]) -> ConfigPart:
        home, person, before = self._options.home, self._person, self._before
        part = before.new_in(sum(done, ConfigPart()))
        planned = plan(home, before, part)
        if planned.errors:
            problems = "\n".join(error.for_people() for error in planned.errors)
            raise NanobotError(
                f"nothing was changed, because the configuration would not be valid:\n{problems}"
            )
        for warning in planned.warnings:
            person.say(f"Note: {warning}")
        self._is_confirmed = not self._attended or part.is_empty
        if not self._is_confirmed:
            _print_heading(person, "Changes")
            person.say(table(part.summary, margin=2))
            person.say(format_diff(home, planned).rstrip("\n"))
            self._is_confirmed = await person.confirm("Save these changes?")
            if not self._is_confirmed:
                person.say("Nothing was changed.")
        return part


def _channel_options(options: argparse.Namespace, channel: str) -> dict[str, str]:
    """Return the command-line options of a channel, by the keys of its settings."""
    if channel == "whatsapp":
        given = {"owner": options.owner_whatsapp}
    elif channel == "telegram":
        variable = options.telegram_token_env
        given = {
            "token": from_environment(variable) if variable else "",
            "base_url": options.telegram_base_url,
            "owner": options.owner_telegram,
        }
    else:
        given = {}
    return {key: value for key, value in given.items() if value}


def _print_heading(person: Person, text: str) -> None:
    person.say(f"\n{text}\n{'-' * len(text)}")


def _finish(person: Person, options: argparse.Namespace, part: ConfigPart) -> int:
    """Sign in, get a first reply of a tested model, and show the next commands. Return the exit
    code."""
    later = list(filterfalse(partial(_sign_in, person, options), part.sign_in))
    runs = of_gateway(options.home) is not None
    is_stale = runs and not part.is_empty and not _offer_restart(person, options)
    reply = "" if runs else _first_reply(person, options, part)
    if options.json:
        data = {**part.as_json(), "restart_needed": is_stale, "reply": reply or None}
        print_json({"home": str(options.home), **data})
    else:
        if options.non_interactive:
            replied = [("reply", one_line(reply, 200))] if reply else []
            print_text(table([*part.summary, *replied]))
        _print_heading(person, "Next")
        rows = _next_commands(command_for(options.home), part, later, runs=runs, is_stale=is_stale)
        person.say(table(rows, margin=2).rstrip("\n"))
    return 1 if reply is None else 0


def _sign_in(person: Person, options: argparse.Namespace, name: str) -> bool:
    """Sign in to a channel. Return False if it is left for later."""
    if options.non_interactive:
        return False
    _print_heading(person, f"Signing in to {name}")
    try:
        login(options.home, name, "")
    except NanobotError as error:
        person.say(f"That did not work: {error.for_people()}")
        return False
    except KeyboardInterrupt:
        person.say("Skipped for now.")
        return False
    return True


def _offer_restart(person: Person, options: argparse.Namespace) -> bool:
    """Ask to restart the gateway with the new settings. Return True if it restarts."""
    question = "A gateway is running with the previous settings. Restart it now?"
    if not (options.restart or options.non_interactive):
        options.restart = asyncio.run(person.confirm(question))
    if options.restart:
        _say_to_it(options, "/restart", person)
        person.say("The gateway is restarting. To check it, run `nanobot status`.")
    return bool(options.restart)


def _first_reply(person: Person, options: argparse.Namespace, part: ConfigPart) -> str | None:
    """Return the first reply of a new, tested model. It is empty if none is wanted, and None if the
    model could not answer."""
    is_tried = "model" in dict(part.summary) and "model" not in part.unchecked
    if not is_tried or part.is_empty or options.no_test:
        return ""
    if not options.non_interactive:
        _print_heading(person, "First message")
        if not asyncio.run(person.confirm("Say hello to the model?")):
            return ""
    person.say(
        "The model reads nanobot's whole prompt first. On a slow machine, this can take minutes."
    )
    person.say(f"You: {_HELLO}")
    *messages, reply = _say_to_it(options, _HELLO, person)
    if isinstance(reply, Reply) and reply.outcome != "done":
        person.say(f"That did not work: {reply.text}")
        return None
    text = "\n".join(filter(None, (one.text for one in (*messages, reply))))
    person.say(f"nanobot: {text}")
    return text


def _say_to_it(
    options: argparse.Namespace, text: str, person: Person
) -> list[AgentMessage | Reply]:
    """Send a message to the gateway and return its answers. Show how far a slow model has read."""
    answers: list[AgentMessage | Reply] = []
    with open_client(options.home) as client:
        message_id = client.send_message(text, DEFAULT_SESSION, stream=True)
        for event in replies(client, message_id, DEFAULT_SESSION):
            if isinstance(event, Reading) and event.text:
                person.say(event.text)
            elif isinstance(event, AgentMessage | Reply):
                answers.append(event)
    return answers


def _next_commands(
    nanobot: str, part: ConfigPart, later: Sequence[str], *, runs: bool, is_stale: bool
) -> list[tuple[str, str]]:
    """Return the suggested next commands, each with its purpose."""
    rows = [(f"channels login {name}", f"sign in to {name}") for name in later]
    if part.unchecked:
        command = "doctor --ask-model" if "model" in part.unchecked else "doctor"
        rows.insert(0, (command, "check what was skipped"))
    if is_stale:
        rows.append(("agent -m /restart", "restart the gateway with the new settings"))
    elif not runs:
        if runs_systemd():
            rows.append(("service install", "keep nanobot running from now on"))
        rows.append(("gateway", "run nanobot here until you press Ctrl-C"))
    rows += [
        ("agent", "open a chat in this terminal"),
        ("web", "open nanobot in the browser"),
        ("onboard", "change these settings"),
    ]
    return [(f"{nanobot} {command}", purpose) for command, purpose in rows]
