"""The wizard as a story: ask, show what will be written, write it, sign in, and say hello.

Invariant: until the person has seen what will be written and said yes, nothing is. Secrets go into
secrets.env and nowhere else. What was not asked for stays in config.yaml byte for byte.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from nanobot.channel import Person
from nanobot.cli.agent import replies
from nanobot.cli.channels import login
from nanobot.cli.command import WrongUsage, log_errors_only, path_of, print_json, print_text, table
from nanobot.cli.config import diff_text
from nanobot.cli.gateway import connected
from nanobot.cli.onboard.files import ConfigPart, write
from nanobot.cli.onboard.model import server_options
from nanobot.cli.onboard.people import Answers, Remembering, Step, Unanswered, in_words, walk
from nanobot.cli.onboard.steps import OnboardStep, Situation, list_steps
from nanobot.cli.service import runs_systemd
from nanobot.cli.status import of_gateway
from nanobot.config import command_for
from nanobot.config.changing import ExistingFiles, plan
from nanobot.config.load import CONFIG_FILE, load_settings
from nanobot.errors import ConfigError, NanobotError
from nanobot.providers.dialect import is_near
from nanobot_cli.text import one_line
from nanobot_cli.wire import DEFAULT_SESSION, AgentMessage, Reading, Reply

_INTRODUCTION = """\
This sets nanobot up: a model, the chats that it answers in, and you. Nothing is written before \
you have seen it. The answer < goes back; Ctrl-C leaves at any point."""
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


def _head(person: Person, text: str) -> None:
    person.say(f"\n{text}\n{'-' * len(text)}")


class Interview:
    """All questions until everything is confirmed, of which each may be gone back to: the home, the
    steps, and having it all confirmed. Sets the home of the options to the folder that the person
    names.

    What the command line says is not asked for. A first run goes through model and person, and
    everything else only if that is wanted.
    """

    _at: Situation
    """Known once the home is, which is the first question."""

    def __init__(self, person: Person, options: argparse.Namespace) -> None:
        self._person, self._options = Remembering(person), options
        self._attended = not options.non_interactive
        self._confirmed = False
        is_chosen = options.given_home or os.environ.get("NANOBOT_HOME")
        is_there = (options.home / CONFIG_FILE).exists()
        self._asks_home = self._attended and not (is_chosen or is_there)

    async def run(self) -> tuple[ExistingFiles, ConfigPart] | None:
        """What is to be written, checked and confirmed; None where the person declines. Raises
        `NanobotError`."""
        if self._attended:
            self._person.say(_INTRODUCTION)
        steps: list[Step[ConfigPart]] = [self._home]
        steps += (partial(self._take, one) for one in list_steps())
        *_, part = await walk(self._person, [*steps, self._confirm])
        return (self._at.before, part) if self._confirmed else None

    async def _home(self, _: Sequence[ConfigPart]) -> ConfigPart:
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
        self._at = Situation(self._person, options, settings, before)
        if not (before.config or self._attended or self._at.given("model")):
            hint = "Add --model-name, --provider, --base-url or, to try nanobot out, --offline."
            raise NanobotError("which model should answer?", hint=hint)
        return ConfigPart()

    async def _take(self, step: OnboardStep, _: Sequence[ConfigPart]) -> ConfigPart:
        """Take a step, if it is wanted. Where it fails, a person keeps the answers of the others.
        Raises `NanobotError`."""
        is_given = self._at.given(step.name) is not None
        if not (is_given or (self._attended and await self._is_wanted(step))):
            return ConfigPart()
        while True:
            if self._attended:
                _head(self._person, step.title[0].upper() + step.title[1:])
            try:
                return await step.ask(self._at)
            except NanobotError as error:
                if isinstance(error, Unanswered) or not self._attended:
                    raise
                self._person.say(f"That did not work: {in_words(error)}")
                if not await self._person.confirm("Go through this step again?"):
                    return ConfigPart()

    async def _is_wanted(self, step: OnboardStep) -> bool:
        if step.is_basic and not self._at.before.config:
            return True
        is_there = step.is_basic or step.name in self._at.settings.channels
        question = f"Change {step.title}?" if is_there else f"Set {step.title} up?"
        return await self._person.confirm(question, default=False)

    async def _confirm(self, done: Sequence[ConfigPart]) -> ConfigPart:
        home, person, before = self._options.home, self._person, self._at.before
        part = before.new_in(sum(done, ConfigPart()))
        planned = plan(home, before, part)
        if planned.errors:
            said = "\n".join(error.for_people() for error in planned.errors)
            raise NanobotError(f"the configuration would be wrong:\n{said}")
        for warning in planned.warnings:
            person.say(f"Note: {warning}")
        self._confirmed = not self._attended or part.is_empty
        if self._confirmed:
            return part
        _head(person, "To be written")
        person.say(table(part.summary, margin=2))
        person.say(diff_text(home, planned).rstrip("\n"))
        self._confirmed = await person.confirm("Write it?")
        if not self._confirmed:
            person.say("Nothing was written.")
        return part


def _finish(person: Person, options: argparse.Namespace, part: ConfigPart) -> int:
    """Sign in where that is wanted, have a first reply of another model or with another key, say
    what comes next; the exit code."""
    attended = not options.non_interactive
    later = [one for one in part.sign_in if not attended or not _signed_in(person, options, one)]
    runs = of_gateway(options.home) is not None
    stale = runs and not part.is_empty and not _restarted(person, options)
    wants_reply = not (runs or part.is_empty) and _wants_reply(person, options, part)
    reply = _first_reply(person, options) if wants_reply else None
    if options.json:
        print_json(_report(options.home, part) | {"restart_needed": stale, "reply": reply})
    else:
        if not attended:
            replied = [("reply", one_line(reply, 200))] if reply else []
            print_text(table([*part.summary, *replied]))
        _head(person, "Next")
        later_commands = [(f"channels login {name}", f"signs in to {name}") for name in later]
        person.say(_next(options.home, [*_checks(part), *later_commands], runs=runs, stale=stale))
    return 1 if wants_reply and reply is None else 0


def _report(home: Path, part: ConfigPart) -> dict[str, object]:
    return {
        "home": str(home),
        "changed": [".".join(one.path) for one in part.changes],
        "secrets": list(part.secrets),
        "told": dict(part.summary),
        "sign_in": list(part.sign_in),
    }


def _wants_reply(person: Person, options: argparse.Namespace, part: ConfigPart) -> bool:
    """Whether a new model, that was tried, is to say something."""
    if options.no_test or "model" in part.unchecked or "model" not in dict(part.summary):
        return False
    if options.non_interactive:
        return True
    _head(person, "A first word")
    return asyncio.run(person.confirm("Say hello to it?"))


def _checks(part: ConfigPart) -> list[tuple[str, str]]:
    """The command that tries what could not be reached."""
    command = "doctor --ask-model" if "model" in part.unchecked else "doctor"
    return [(command, "tries what could not be checked")] if part.unchecked else []


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
    _say_to_it(options, "/restart", person)
    person.say("It restarts; `nanobot status` shows how it is doing.")
    return True


def _first_reply(person: Person, options: argparse.Namespace) -> str | None:
    """Return what it says to a first word, or None if it could not answer."""
    if is_near(load_settings(options.home).model.base_url):
        person.say(
            "It reads nanobot's whole prompt first. That can take minutes on a slow machine."
        )
    person.say(f"You: {_HELLO}")
    *said, reply = _say_to_it(options, _HELLO, person)
    if isinstance(reply, Reply) and reply.outcome != "done":
        person.say(f"That did not work: {reply.text}")
        return None
    text = "\n".join(one.text for one in (*said, reply) if one.text)
    person.say(f"nanobot: {text}")
    return text


def _say_to_it(
    options: argparse.Namespace, text: str, person: Person
) -> list[AgentMessage | Reply]:
    """Send a message to the gateway and return its answers. The person sees how far a slow model
    has read."""
    said: list[AgentMessage | Reply] = []
    with connected(options.home) as client:
        message_id = client.send_message(text, DEFAULT_SESSION, stream=True)
        for event in replies(client, message_id, DEFAULT_SESSION):
            if isinstance(event, Reading) and event.text:
                person.say(event.text)
            elif isinstance(event, AgentMessage | Reply):
                said.append(event)
    return said


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
