"""The flow of onboarding: ask, show the changes, confirm, write, sign in to channels, and send the
model a first message.

Invariant: nothing is written before the person has confirmed it. Secrets are only written to
secrets.env. Other settings in config.yaml keep every byte."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from itertools import filterfalse

from nanobot.app.setup.changes import ConfigPart, write
from nanobot.app.setup.interview import Interview, Topic
from nanobot.app.setup.questions import SetupOptions, from_environment, server_options
from nanobot.channel import Person
from nanobot.cli.agent import replies
from nanobot.cli.channels import borrow_channel, login
from nanobot.cli.command import WrongUsage, log_errors_only, path_of, print_json, print_text, table
from nanobot.cli.config import format_diff
from nanobot.cli.gateway import open_client
from nanobot.cli.onboard.people import Answers
from nanobot.cli.service import runs_systemd
from nanobot.cli.status import of_gateway
from nanobot.config import command_for
from nanobot.config.changes import ConfigPlan
from nanobot.config.load import CONFIG_FILE
from nanobot.errors import NanobotError, NoGateway
from nanobot_cli.text import one_line
from nanobot_cli.wire import DEFAULT_SESSION, AgentMessage, Reading, Reply

_INTRODUCTION = """\
This sets up a model, your chat apps, and your name. Nothing is saved until you confirm. Type < \
to go back, or press Ctrl-C to cancel."""
_HELLO = "Hello!"


def onboard(options: argparse.Namespace) -> int:
    """`nanobot onboard`. Return 1 if the first reply failed. Raises `NanobotError`, in most cases
    before anything is written."""
    log_errors_only()
    known = read_options(options)
    if options.offline and (named := server_options(known)):
        hint = "The built-in model has no server. Leave out one of the options."
        raise WrongUsage(f"--offline cannot be combined with {named[0]}", hint=hint)
    if options.api_key_env and options.api_key_stdin:
        raise WrongUsage("--api-key-env cannot be combined with --api-key-stdin")
    person = Answers(attended=not options.non_interactive)
    is_chosen = options.given_home or os.environ.get("NANOBOT_HOME")
    is_there = (options.home / CONFIG_FILE).exists()
    interview = TerminalInterview(
        Answers(attended=not options.non_interactive, back=True),
        known,
        asks_home=not (is_chosen or is_there),
    )
    try:
        answered = asyncio.run(interview.run())
    except KeyboardInterrupt:
        sys.stderr.write("\nCanceled. Nothing was changed.\n")
        raise
    options.home = known.home
    if answered is None:
        return 0
    before, part = answered
    if part.is_empty:
        person.say("Nothing to change.")
    else:
        write(options.home, before, part)
        person.say(f"Saved in {options.home}.")
    return _finish(person, options, part)


class TerminalInterview(Interview):
    """The questions in a terminal. The person's choice of folder replaces the home of the
    options."""

    def __init__(self, person: Person, options: SetupOptions, *, asks_home: bool = False) -> None:
        super().__init__(person, options)
        self._asks_home = asks_home and self.attended

    async def choose_home(self) -> None:
        if self.attended:
            self.person.say(_INTRODUCTION)
        if self._asks_home:
            asked = "The folder for nanobot's data"
            self.options.home = path_of(await self.person.ask(asked, str(self.options.home)))

    def show_heading(self, text: str) -> None:
        _print_heading(self.person, text)

    async def is_wanted(self, topic: Topic) -> bool:
        if topic.is_basic and not self.before.config:
            return True
        is_there = topic.is_basic or topic.name in self.settings.channels
        question = f"Change {topic.title}?" if is_there else f"Set up {topic.title}?"
        return await self.person.confirm(question, default=False)

    async def confirm(self, part: ConfigPart, planned: ConfigPlan) -> bool:
        self.show_heading("Changes")
        self.person.say(table(part.summary, margin=2))
        self.person.say(format_diff(self.options.home, planned).rstrip("\n"))
        is_confirmed = await self.person.confirm("Save these changes?")
        if not is_confirmed:
            self.person.say("Nothing was changed.")
        return is_confirmed

    @asynccontextmanager
    async def borrow(self, channel: str) -> AsyncIterator[None]:
        with ExitStack() as stack:
            with suppress(NoGateway):
                stack.enter_context(borrow_channel(self.settings.home, channel))
            yield


def read_options(options: argparse.Namespace) -> SetupOptions:
    """Return the options of the command line. Raises `NanobotError`."""
    names = (one for one in SetupOptions.__struct_fields__ if one != "channels")
    named = {"telegram": _telegram_options(options), "whatsapp": {"owner": options.owner_whatsapp}}
    channels = {
        channel: {key: value for key, value in given.items() if value}
        for channel, given in named.items()
    }
    return SetupOptions(**{name: getattr(options, name) for name in names}, channels=channels)


def _telegram_options(options: argparse.Namespace) -> dict[str, str]:
    variable = options.telegram_token_env
    return {
        "token": from_environment(variable) if variable else "",
        "base_url": options.telegram_base_url,
        "owner": options.owner_telegram,
    }


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
