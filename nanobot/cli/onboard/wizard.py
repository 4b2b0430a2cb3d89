"""The wizard as a story: ask, show what will be written, write it, sign in, and say hello.

Invariant: until the person has seen what will be written and said yes, nothing is. Secrets go into
secrets.env and nowhere else. What was not asked for stays in config.yaml byte for byte.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path

from nanobot.channel import Person, Setup, SetupRequest, SetupResult
from nanobot.cli.agent import replies
from nanobot.cli.channels import leased, login
from nanobot.cli.command import WrongUsage, log_errors_only, path_of, print_json, print_text, table
from nanobot.cli.gateway import connected
from nanobot.cli.onboard.files import ConfigPart, check, name_in, write
from nanobot.cli.onboard.model import ModelStep, from_environment, server_options
from nanobot.cli.onboard.people import Answers, Unanswered
from nanobot.cli.onboard.retrace import Retraced, walk
from nanobot.cli.service import runs_systemd
from nanobot.cli.status import of_gateway
from nanobot.clock import SystemClock, system_zone_name
from nanobot.config import command_for
from nanobot.config.changing import ExistingFiles
from nanobot.config.load import CONFIG_FILE, SECRETS_FILE, load_settings
from nanobot.config.settings import AgentSettings, Settings
from nanobot.config.values import checked_id
from nanobot.config.yamltext import ConfigChange, Setting
from nanobot.errors import ConfigError, NanobotError
from nanobot.validation import Invalid, InvalidValue, build
from nanobot_cli.text import one_line
from nanobot_cli.wire import DEFAULT_SESSION, AgentMessage, Reply

GROUP = "nanobot.channel_setups"

_INTRODUCTION = """\
This sets nanobot up: a model, the chats that it answers in, and you. Nothing is written before \
you have seen it. The answer < goes back to the question before; Ctrl-C leaves at any point."""
_HELLO = "Hello!"


def onboard(options: argparse.Namespace) -> int:
    """`nanobot onboard`; the exit code is 1 where there was to be a reply and was none. Raises
    `NanobotError`; nothing is written then, unless it says otherwise."""
    log_errors_only()
    if options.offline and (named := server_options(options)):
        hint = "The built-in model has no server; leave one or the other out."
        raise WrongUsage(f"--offline and {named[0]} exclude each other", hint=hint)
    if options.api_key_env and options.api_key_stdin:
        raise WrongUsage("--api-key-env and --api-key-stdin exclude each other")
    attended = not options.non_interactive
    person = Answers(attended=attended)
    try:
        answered = asyncio.run(Interview(Answers(attended=attended, back=True), options).run())
    except KeyboardInterrupt:
        sys.stderr.write("\nLeft; nothing was written.\n")
        raise
    if answered is None:
        return 0
    before, part = answered
    if part.is_empty:
        person.say("Everything stays as it is.")
    else:
        write(options.home, before, part)
        person.say(f"Written to {options.home}.")
    return _finish(person, options, part)


class Interview:
    """All questions until everything is confirmed, of which each may be gone back to. Sets the home
    of the options to the folder that the person names."""

    def __init__(self, person: Person, options: argparse.Namespace) -> None:
        self._person, self._options = Retraced(person), options
        self._attended = not options.non_interactive
        self._steps: Steps | None = None
        self._confirmed = False
        is_chosen = options.given_home or os.environ.get("NANOBOT_HOME")
        is_there = (options.home / CONFIG_FILE).exists()
        self._asks_home = self._attended and not (is_chosen or is_there)

    async def run(self) -> tuple[ExistingFiles, ConfigPart] | None:
        """What is to be written, checked and confirmed; None where the person declines. Raises
        `NanobotError`."""
        if self._attended:
            self._person.say(_INTRODUCTION)
        *_, part = await walk(self._person, self._following)
        return (self._opened.before, part) if self._confirmed else None

    def _following(self, done: Sequence[ConfigPart]) -> Callable[[], Awaitable[ConfigPart]] | None:
        """The steps are the home, those of `Steps`, and having it all confirmed."""
        if not done:
            return self._home
        names = self._opened.names
        if len(done) <= len(names):
            return partial(self._opened.step, names[len(done) - 1])
        whole = sum(done, ConfigPart())
        return partial(self._confirm, whole) if len(done) == len(names) + 1 else None

    @property
    def _opened(self) -> Steps:
        if self._steps is None:
            raise LookupError("the home is the first step")
        return self._steps

    async def _home(self) -> ConfigPart:
        options = self._options
        if self._asks_home:
            asked = "The folder for nanobot's data"
            options.home = path_of(await self._person.ask(asked, str(options.home)))
        try:
            settings = load_settings(options.home)
        except ConfigError as error:
            raise NanobotError(
                f"the present configuration cannot be used:\n{error.for_people()}",
                hint="Fix that first, or move the file away to start over.",
            ) from None
        before = ExistingFiles.read(options.home, os.environ)
        self._steps = Steps(self._person, options, settings, before)
        return ConfigPart()

    async def _confirm(self, whole: ConfigPart) -> ConfigPart:
        home, person, steps = self._options.home, self._person, self._opened
        part = steps.before.new_in(whole)
        for warning in steps.new_warnings(part):
            person.say(f"Note: {warning}")
        self._confirmed = not self._attended or part.is_empty
        if self._confirmed:
            return part
        _head(person, "To be written")
        person.say(table(part.summary, margin=2))
        lines = [f"  {line}" for line in steps.before.changed_lines(part)]
        lines = [str(home / CONFIG_FILE), *lines] if lines else []
        if part.secrets:
            lines += [str(home / SECRETS_FILE), *(f"  +{name}=…" for name in part.secrets)]
        person.say("\n".join(lines))
        self._confirmed = await person.confirm("Write it?")
        if not self._confirmed:
            person.say("Nothing was written.")
        return part


def _head(person: Person, text: str) -> None:
    person.say(f"\n{text}\n{'-' * len(text)}")


class Steps:
    """The steps for one home, by `names`; `settings` and `before` are as they are before the first.

    What the command line says is not asked for. A first run goes through model and person, and
    everything else only if that is wanted.
    """

    def __init__(
        self,
        person: Retraced,
        options: argparse.Namespace,
        settings: Settings,
        before: ExistingFiles,
    ) -> None:
        self._person, self._options = person, options
        self._attended, self._test = not options.non_interactive, not options.no_test
        self._settings, self.before = settings, before
        self._clock = SystemClock(settings.agent.timezone)
        model = ModelStep(person, options, settings.model, before, self._clock)
        given, is_first = _given(options), not before.config
        if options.offline or server_options(options):
            given["model"] = {}
        elif is_first and not self._attended:
            hint = "Add --model-name, --provider, --base-url or, to try nanobot out, --offline."
            raise NanobotError("which model should answer?", hint=hint)
        if options.owner_name or options.timezone:
            given["you"] = {}
        self._asking: dict[str, Callable[[], Awaitable[ConfigPart]]] = {"model": model.run}
        for name in sorted({point.name for point in entry_points(group=GROUP)}):
            self._asking[name] = partial(self._channel, name, given.get(name, {}))
        self._asking["you"] = self._you
        self._wanted = {*given, *(("model", "you") if is_first and self._attended else ())}
        self.names = tuple(self._asking)

    async def step(self, name: str) -> ConfigPart:
        """Take a step, if it is wanted. Where it fails, a person keeps the answers of the others.
        Raises `NanobotError`."""
        wanted = name in self._wanted or (self._attended and await self._is_wanted(name))
        if not wanted:
            return ConfigPart()
        begun = len(self._person.given)
        while True:
            if self._attended:
                _head(self._person, _titled(name)[0].upper() + _titled(name)[1:])
            try:
                return await self._asking[name]()
            except NanobotError as error:
                if isinstance(error, Unanswered) or not self._attended:
                    raise
                self._person.say(f"That did not work: {error.for_people()}")
                if not await self._person.confirm("Go through this step again?"):
                    return ConfigPart()
                del self._person.given[begun:]  # going back leads through the last attempt alone

    def new_warnings(self, part: ConfigPart) -> list[str]:
        """What is doubtful in the settings as they would be, and was not before. Raises
        `NanobotError` for what cannot be."""
        there = {*self._settings.warnings}
        return sorted({*check(self._settings.home, self.before, part).warnings} - there)

    def _is_wanted(self, name: str) -> Awaitable[bool]:
        is_there = name in self._settings.channels or name in ("model", "you")
        question = f"Change {_titled(name)}?" if is_there else f"Set {_titled(name)} up?"
        return self._person.confirm(question, default=False)

    async def _channel(self, name: str, given: Mapping[str, str]) -> ConfigPart:
        """The adapter asks."""
        channel = self._settings.channels.get(name)
        request = SetupRequest(
            person=self._person,
            options=channel.options if channel else None,
            owners=self._settings.owner.get(name, ()),
            given=given,
            clock=self._clock,
            attended=self._attended,
            test=self._test,
        )
        (point, *_) = entry_points(group=GROUP, name=name)
        setup: Setup = point.load()
        with leased(self._settings.home, name):  # so that what the person writes is seen here
            result = await setup(request)
        return ConfigPart() if result is None else _part_of_channel(name, result, self.before)

    async def _you(self) -> ConfigPart:
        """What the options say of the person, or else what they say."""
        options, present = self._options, self._settings.agent.timezone
        name, zone, known = options.owner_name, options.timezone, name_in(options.home)
        if not (name or zone):
            name = await self._person.ask("Your name (Enter to leave it open)", known)
            usual = present or system_zone_name(os.environ) or "UTC"
            zone = await self._person.ask("Your time zone", usual)
        try:
            zone = build(AgentSettings, {"timezone": zone}).timezone
        except Invalid:
            hint = "It is written like Europe/Berlin."
            raise NanobotError(f"there is no time zone {zone!r}", hint=hint) from None
        name = " ".join(name.split())
        summary = (("you", name), ("time zone", zone))
        return ConfigPart(
            (ConfigChange(("agent", "timezone"), zone),) if zone not in ("", present) else (),
            summary=tuple((topic, value) for topic, value in summary if value),
            name=name if name != known else "",
        )


def _titled(name: str) -> str:
    """What a step is about, as it is written."""
    special = {"whatsapp": "WhatsApp", "model": "the model", "you": "your name and time zone"}
    return special.get(name, name.capitalize())


def _given(options: argparse.Namespace) -> dict[str, Mapping[str, str]]:
    """What the command line says of channels, by their names and the keys of their settings."""
    variable = options.telegram_token_env
    telegram = {
        "token": from_environment(variable) if variable else "",
        "base_url": options.telegram_base_url,
        "owner": options.owner_telegram,
    }
    given = {"telegram": telegram, "whatsapp": {"owner": options.owner_whatsapp}}
    said = {name: {k: v for k, v in values.items() if v} for name, values in given.items()}
    return {name: values for name, values in said.items() if values}


def _part_of_channel(name: str, result: SetupResult, before: ExistingFiles) -> ConfigPart:
    """What is to be written for what an adapter found out."""
    variables = {
        key: before.variable(("channels", name, key), f"{name}_{key}".upper(), secret)
        for key, secret in result.secrets.items()
    }
    values: dict[str, Setting] = {"enabled": True}
    values |= {key: f"${{{variable}}}" for key, variable in variables.items()}
    values |= result.values
    changes = [ConfigChange(("channels", name, key), value) for key, value in values.items()]
    owner = ""
    if result.owners:
        try:
            owners = tuple(map(checked_id, result.owners))
        except InvalidValue as error:
            raise NanobotError(f"your id {error}", hint=error.hint) from None
        changes.insert(0, ConfigChange(("owner", name), owners))
        owner = f", you are {', '.join(owners)}"
    return ConfigPart(
        tuple(changes),
        {variables[key]: secret for key, secret in result.secrets.items()},
        ((name, (result.who or "on") + owner),),
        (name,) if result.sign_in else (),
    )


def _finish(person: Person, options: argparse.Namespace, part: ConfigPart) -> int:
    """Sign in where that is wanted, have a first reply of another model or with another key, say
    what comes next; the exit code."""
    attended, summary = not options.non_interactive, dict(part.summary)
    later = [one for one in part.sign_in if not attended or not _signed_in(person, options, one)]
    runs = of_gateway(options.home) is not None
    stale = runs and not part.is_empty and not _restarted(person, options)
    reply: str | None = None
    untried = options.no_test or part.unchecked
    wants_reply = "model" in summary and not (untried or runs or part.is_empty)
    if wants_reply and attended:
        _head(person, "A first word")
        wants_reply = asyncio.run(person.confirm("Say hello to it?"))
    if wants_reply:
        reply = _first_reply(person, options)
    if options.json:
        report = {
            "home": str(options.home),
            "changed": [".".join(one.path) for one in part.changes],
            "secrets": list(part.secrets),
            "told": summary,
            "sign_in": list(part.sign_in),
            "restart_needed": stale,
            "reply": reply,
        }
        print_json(report)
    else:
        if not attended:
            replied = [("reply", one_line(reply, 200))] if reply else []
            print_text(table([*part.summary, *replied]))
        _head(person, "Next")
        later_commands = [(f"channels login {name}", f"signs in to {name}") for name in later]
        if part.unchecked:
            later_commands.insert(0, ("doctor --ask-model", "tries what could not be checked"))
        person.say(_next(options.home, later_commands, runs=runs, stale=stale))
    return 1 if wants_reply and reply is None else 0


def _signed_in(person: Person, options: argparse.Namespace, name: str) -> bool:
    """Sign in to a channel; False where it is left for later."""
    _head(person, f"Signing in to {name}")
    try:
        login(options.home, name, "")
    except NanobotError as error:
        person.say(f"That did not work: {error.for_people()}")
        return False
    except KeyboardInterrupt:
        person.say("Left for later.")
        return False
    return True


def _restarted(person: Person, options: argparse.Namespace) -> bool:
    """Have the gateway start again with the new settings, if that is wanted."""
    question = "A gateway is running with the previous settings. Restart it now?"
    if not options.restart and (
        options.non_interactive or not asyncio.run(person.confirm(question))
    ):
        return False
    _say_to_it(options, "/restart")
    person.say("It restarts; `nanobot status` shows how it is doing.")
    return True


def _first_reply(person: Person, options: argparse.Namespace) -> str | None:
    """What it says to a first word; None where it could not."""
    person.say(f"You: {_HELLO}")
    *said, reply = _say_to_it(options, _HELLO)
    if isinstance(reply, Reply) and reply.outcome != "done":
        person.say(f"That did not work: {reply.text}")
        return None
    text = "\n".join(one.text for one in (*said, reply) if one.text)
    person.say(f"nanobot: {text}")
    return text


def _say_to_it(options: argparse.Namespace, text: str) -> list[AgentMessage | Reply]:
    """Say something to the gateway, and what it said."""
    with connected(options.home) as client:
        events = list(replies(client, client.send_message(text, DEFAULT_SESSION), DEFAULT_SESSION))
    return [event for event in events if isinstance(event, AgentMessage | Reply)]


def _next(home: Path, later: Sequence[tuple[str, str]], *, runs: bool, stale: bool) -> str:
    rows = [*later]
    if stale:
        rows.append(("agent -m /restart", "restarts the gateway with the new settings"))
    elif not runs:
        if runs_systemd():
            rows.append(("service install", "keeps it running from now on"))
        rows.append(("gateway", "runs it here, until Ctrl-C"))
    rows += [
        ("agent", "opens a chat in this terminal"),
        ("web", "opens the page in the browser"),
        ("onboard", "changes what was set here"),
    ]
    commands = ((f"{command_for(home)} {command}", what) for command, what in rows)
    return table(commands, margin=2).rstrip("\n")
