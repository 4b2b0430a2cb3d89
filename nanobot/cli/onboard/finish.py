"""What comes after the files are written: signing in, the first reply, and what to do next."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot.cli.admin import put, to_json
from nanobot.cli.client import Client, ConnectionLost
from nanobot.cli.connection import NoGateway
from nanobot.cli.reach import connected, state_folder
from nanobot.cli.show import indent, number, table
from nanobot.config import command_for
from nanobot.errors import NanobotError
from nanobot_cli.text import clean, one_line
from nanobot_cli.wire import DEFAULT_SESSION, Note, Reply, Said

if TYPE_CHECKING:
    from nanobot.cli.onboard.options import OnboardOptions
    from nanobot.cli.onboard.parts import Part
    from nanobot.cli.onboard.people import Guide

_HELLO = "Hello!"
_RESTART_SECONDS = 60.0
_PAUSE = 0.1


def finish(person: Guide, options: OnboardOptions, part: Part, *, greets: bool) -> int:
    """Sign in where that is wanted, have a first reply if there is reason for it (`greets`), say
    what comes next. Returns the exit code: 1 where there was to be a reply and was none."""
    later = [name for name in part.sign_in if not _signed_in(person, options, name)]
    runs = _is_running(options.home)
    stale = runs and not part.is_empty and not _restarted(person, options)
    reply: str | None = None
    wants_reply = greets and not stale and _wants_reply(person, options)
    if wants_reply:
        reply = _first_reply(person, options, runs=runs)
    if options.as_json:
        put(to_json(_report(options, part, reply, restart_needed=stale)))
    else:
        if not options.attended:
            put(table([*part.told, *([("reply", one_line(reply, 200))] if reply else [])]))
        person.head("Next")
        person.say(_next(options.home, runs=runs, stale=stale, later=later))
    return 1 if wants_reply and reply is None else 0


def _signed_in(person: Guide, options: OnboardOptions, name: str) -> bool:
    """Sign in at a channel with a person; False where it is left for later."""
    from nanobot.cli.channels import login

    if not options.attended:
        return False
    person.head(f"Signing in at {name}")
    try:
        login(options.home, name, "")
    except NanobotError as error:
        person.say(f"That did not work: {error.for_people()}")
        return False
    except KeyboardInterrupt:
        person.say("Left for later.")
        return False
    return True


def _is_running(home: Path) -> bool:
    try:
        with Client(state_folder(home)) as client:
            client.ask("status", {})
    except NoGateway:
        return False
    return True


def _restarted(person: Guide, options: OnboardOptions) -> bool:
    """Have the gateway that runs start anew with the new settings, if that is wanted."""
    import asyncio

    if options.attended:
        question = "A gateway is running with the settings of before. Restart it now?"
        wanted = options.restart or asyncio.run(person.confirm(question))
    else:
        wanted = options.restart
    if not wanted:
        return False
    _restart(options.home)
    person.say("It restarted.")
    return True


def _restart(home: Path) -> None:
    """Have the gateway start anew, and wait until it has: whoever takes the home in between keeps
    it from coming back. Raises `NanobotError` where it does not come."""
    began = time.monotonic()
    with Client(state_folder(home)) as client:
        for _ in client.reply(client.say("/restart", DEFAULT_SESSION)):
            pass
    was_away = False
    while time.monotonic() - began < _RESTART_SECONDS:
        try:
            with Client(state_folder(home)) as client:
                status = client.ask("status", {})
        except (NoGateway, ConnectionLost):
            was_away = True
        else:
            uptime = number(status, "uptime_seconds") if isinstance(status, dict) else 0
            if was_away or uptime < time.monotonic() - began:
                return
        time.sleep(_PAUSE)
    raise NanobotError(
        "everything is written, but the gateway did not come back",
        hint="`nanobot status` and its log say more; start it again yourself.",
    )


def _wants_reply(person: Guide, options: OnboardOptions) -> bool:
    import asyncio

    if not options.attended:
        return True
    person.head("A first word")
    return asyncio.run(person.confirm("Say hello to it?"))


def _first_reply(person: Guide, options: OnboardOptions, *, runs: bool) -> str | None:
    """What it says to a first word; None where it could not."""
    from nanobot.cli.consent import Consent

    person.say(f"You: {_HELLO}")
    said: list[str] = []
    with Client(state_folder(options.home)) if runs else connected(options.home) as client:
        for event in Consent(client, DEFAULT_SESSION).events(client.say(_HELLO, DEFAULT_SESSION)):
            match event:
                case Note():
                    sys.stderr.write(clean(f"note: {event.text}\n"))
                case Said(text=text) | Reply(text=text) if text:
                    said.append(text)
                case _:
                    pass
            if isinstance(event, Reply) and event.outcome != "done":
                person.say(f"That did not work: {event.text}")
                return None
    text = "\n".join(said)
    person.say(f"nanobot: {text}")
    return text


def _next(home: Path, *, runs: bool, stale: bool, later: list[str]) -> str:
    rows = [(f"channels login {name}", f"signs in at {name}") for name in later]
    if stale:
        rows.append(("agent -m /restart", "restarts the gateway with the new settings"))
    elif not runs:
        if _has_systemd():
            rows.append(("service install", "keeps it running from now on"))
        rows.append(("gateway", "runs it here, until Ctrl-C"))
    rows.append(("agent", "opens a chat in this terminal"))
    rows.append(("onboard", "changes what was set here"))
    commands = ((f"{command_for(home)} {command}", what) for command, what in rows)
    return indent(table(commands, 2)).rstrip("\n")


def _has_systemd() -> bool:
    """Whether a service could be started here."""
    from nanobot.cli.service.systemctl import Systemd

    try:
        Systemd(system=True).expect_running()
    except NanobotError:
        return False
    return True


def _report(
    options: OnboardOptions, part: Part, reply: str | None, *, restart_needed: bool
) -> dict[str, object]:
    return {
        "home": str(options.home),
        "changed": [".".join(change.path) for change in part.changes],
        "secrets": list(part.secrets),
        "told": dict(part.told),
        "sign_in": list(part.sign_in),
        "restart_needed": restart_needed,
        "reply": reply,
    }
