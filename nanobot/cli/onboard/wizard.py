"""The step about the person: what they are called and where they live.

The steps about channels: their adapters ask, and what they found out is written here.

The steps in their order: which are taken, and what they found out so far.

What the command line says already is not asked for. A first run goes through all of them, a later
one asks which.

What comes after the files are written: signing in, the first reply, and what to do next.

The wizard as a story: ask, show what will be written, write it, sign in, and say hello.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from nanobot.channel.entry_points import Setup, SetupRequest, SetupResult
from nanobot.cli.channels import lent
from nanobot.cli.client import Client, ConnectionLost, NoGateway
from nanobot.cli.command import put, to_json
from nanobot.cli.gateway import connected, state_folder
from nanobot.cli.onboard.files import (
    Before,
    Part,
    basics_of,
    check,
    described,
    new_basics,
    read,
    write,
)
from nanobot.cli.onboard.model import ask_model, from_environment, given_model
from nanobot.cli.onboard.people import Guide, Unanswered, somebody
from nanobot.cli.show import indent, number, table
from nanobot.clock import SystemClock
from nanobot.config import command_for
from nanobot.config.environment import variable_for
from nanobot.config.values import Unfit, checked_id
from nanobot.config.yamltext import Change, Setting
from nanobot.errors import ConfigError, NanobotError
from nanobot.text import expanduser
from nanobot.zones import system_zone_name
from nanobot_cli.text import clean, one_line
from nanobot_cli.wire import DEFAULT_SESSION, Note, Reply, Said

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nanobot.cli.onboard import OnboardOptions
    from nanobot.cli.onboard.files import Part
    from nanobot.cli.onboard.people import Guide
    from nanobot.clock import Clock
    from nanobot.config.settings import Settings

_NAME, _ZONE = "Name", "Time zone"


async def ask_you(person: Guide, home: Path, zone: str, said: Mapping[str, str]) -> Part:
    """Ask for name and time zone; `zone` is the one that is set, `said` are the basics that were
    said a moment ago."""
    person.head("You")
    person.say("What you say here stands in workspace/USER.md, where you can add to it.")
    known = basics_of(home).get(_NAME, "")
    name = await person.ask("What are you called? (Enter to leave it open)", said.get(_NAME, known))
    guessed = said.get(_ZONE) or zone or system_zone_name(os.environ)
    while True:
        answer = await person.ask("Your time zone", guessed or "UTC")
        try:
            return _part_of_you(name if name != known else "", checked_zone(answer), zone)
        except NanobotError as error:
            person.say(error.for_people())


def given_you(options: OnboardOptions, present: str) -> Part:
    """What the command line says of the person. Raises `NanobotError`."""
    zone = checked_zone(options.timezone) if options.timezone else ""
    return _part_of_you(options.owner_name, zone, present)


def _part_of_you(name: str, zone: str, present: str) -> Part:
    """What is to be written: of what is empty or as it was, nothing."""
    path = ("agent", "timezone")
    name = " ".join(name.split())
    anew = zone if zone != present else ""
    return Part(
        (Change(path, anew, described(path)),) if anew else (),
        told=tuple((topic, said) for topic, said in (("you", name), ("time zone", zone)) if said),
        basics={key: said for key, said in ((_NAME, name), (_ZONE, anew)) if said},
    )


def checked_zone(name: str) -> str:
    """The name of a time zone. Raises `NanobotError`."""
    from nanobot.config.settings import AgentSettings

    try:
        return AgentSettings(timezone=name).timezone
    except ValidationError:
        raise NanobotError(
            f"there is no time zone {name!r}", hint="It is written like Europe/Berlin."
        ) from None


GROUP = "nanobot.channel_setups"


def names() -> tuple[str, ...]:
    """The channels that can be set up here."""
    return tuple(sorted({point.name for point in entry_points(group=GROUP)}))


async def set_up(
    name: str,
    person: Guide,
    settings: Settings,
    before: Before,
    clock: Clock,
    given: Mapping[str, str],
    *,
    attended: bool,
    test: bool,
) -> Part:
    """Set a channel up. Raises `NanobotError`."""
    channel = settings.channels.get(name)
    request = SetupRequest(
        person=person,
        options=channel.options if channel else None,
        owners=settings.owner.get(name, ()),
        given=given,
        clock=clock,
        attended=attended,
        test=test,
    )
    (point, *_) = entry_points(group=GROUP, name=name)
    setup: Setup = point.load()
    with lent(settings.home, name):  # so that what the person writes meanwhile is seen here
        result = await setup(request)
    return _part_of_channel(name, result, before) if result is not None else Part()


def _part_of_channel(name: str, result: SetupResult, before: Before) -> Part:
    """What is to be written for what an adapter found out."""
    variables = {
        key: before.variable(("channels", name, key), f"{name}_{key}".upper(), secret)
        for key, secret in result.secrets.items()
    }
    values: dict[str, Setting] = {"enabled": True}
    values |= {key: f"${{{variable}}}" for key, variable in variables.items()}
    values |= result.values
    changes = [_change(("channels", name, key), value) for key, value in values.items()]
    if result.owners:
        changes.insert(0, _change(("owner", name), tuple(map(_checked, result.owners))))
    who = result.who or "on"
    owner = f", you are {', '.join(result.owners)}" if result.owners else ""
    return Part(
        tuple(changes),
        {variables[key]: secret for key, secret in result.secrets.items()},
        ((name, who + owner),),
        (name,) if result.sign_in else (),
    )


def _checked(id: str) -> str:
    try:
        return checked_id(id)
    except Unfit as error:
        raise NanobotError(f"your id {error}", hint=error.hint) from None


def _change(path: tuple[str, ...], value: Setting) -> Change:
    return Change(path, value, described(path))


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
    from nanobot.cli.agent import Consent

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
    from nanobot.cli.service.systemd import Systemd

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


_INTRODUCTION = """\
This sets nanobot up: a model, the chats that it answers in, and you. Nothing is written before \
you have seen it; Ctrl-C leaves at any point."""
_LEFT = "\nLeft; nothing was written.\n"


def onboard(options: OnboardOptions) -> int:
    """`nanobot onboard`. Raises `NanobotError`; the files are as they were then, unless it says
    otherwise."""
    from nanobot.logs import log_to_console
    from nanobot.security.redaction import Redactor

    options.expect_sense()
    log_to_console("error", Redactor())
    person = somebody(attended=options.attended)
    try:
        wizard = asyncio.run(_asked(person, options))
    except KeyboardInterrupt:
        sys.stderr.write(_LEFT)
        raise
    if wizard is None:
        return 0
    home, before, part = wizard
    if part.is_empty:
        person.say("Everything stays as it is.")
    else:
        before = _written(person, home, before, part, attended=options.attended)
        person.say(f"Written to {home}.")
    greets = options.test and before.renews_model(part)
    return finish(person, options._replace(home=home), part, greets=greets)


async def _asked(person: Guide, options: OnboardOptions) -> tuple[Path, Before, Part] | None:
    """What is to be written, checked and confirmed; None where the person wants it not."""
    if options.attended:
        person.say(_INTRODUCTION)
    home = await _where(person, options)
    settings = _present(home)  # which also says where a file is none
    before = read(home, os.environ)
    steps = Steps(person, options._replace(home=home), settings, before)
    said = await steps.all()
    while True:
        part = replace(before.new_in(said), basics=new_basics(home, said.basics))
        try:
            for note in _notes(home, settings, before, part):
                person.say(f"Note: {note}")
            break
        except NanobotError as error:
            if not options.attended:
                raise
            person.say(error.for_people())
            said = await steps.changed()
    if not options.attended or part.is_empty:
        return home, before, part
    person.head("To be written")
    person.say(indent(table(part.told, 2)).rstrip("\n"))
    secrets = f" and {', '.join(part.secrets)} into secrets.env" if part.secrets else ""
    keys = ", ".join(".".join(change.path) for change in part.changes)
    person.say(f"That is {keys or 'nothing'} in {home / 'config.yaml'}{secrets}.")
    if await person.confirm("Write it?"):
        return home, before, part
    person.say("Nothing was written.")
    return None


def _written(person: Guide, home: Path, before: Before, part: Part, *, attended: bool) -> Before:
    """Write it; a person can have it tried again, on the files as they are then. What they were
    when it worked."""
    while True:
        try:
            write(home, before, part)
        except NanobotError as error:
            if not attended:
                raise
            person.say(error.for_people())
            if not asyncio.run(person.confirm("Your answers are kept. Try to write them again?")):
                raise
        else:
            return before
        before = read(home, os.environ)
        check(home, before, part)


def _notes(home: Path, settings: Settings, before: Before, part: Part) -> Iterator[str]:
    """What the person should know beforehand. Raises `NanobotError` where it would not work."""
    warnings = set(check(home, before, part).warnings) - set(settings.warnings)
    yield from sorted(warnings)
    for change in part.changes:
        name = variable_for(change.path)
        if name in before.environ:
            yield f"{name} in the environment goes before what is written."


async def _where(person: Guide, options: OnboardOptions) -> Path:
    """The home: asked for on the first run, where it was not chosen before."""
    home = options.home
    if not options.attended or options.home_is_chosen or (home / "config.yaml").exists():
        return home
    return _absolute(await person.ask("The folder that nanobot lives in", str(home)))


def _absolute(folder: str) -> Path:
    return expanduser(folder).absolute()


def _present(home: Path) -> Settings:
    from nanobot.config.load import load_settings

    try:
        return load_settings(home)
    except ConfigError as error:
        raise NanobotError(
            f"the present configuration cannot be used:\n{error.for_people()}",
            hint="Mend that first, or move the file away to begin anew.",
        ) from None
