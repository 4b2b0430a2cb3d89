"""The wizard as a story: ask, show what will be written, write it, sign in, and say hello."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot.cli.onboard import finish
from nanobot.cli.onboard.files import check, new_basics, read, write
from nanobot.cli.onboard.parts import Before, Part
from nanobot.cli.onboard.people import Guide, somebody
from nanobot.cli.onboard.steps import Steps
from nanobot.cli.show import indent, table
from nanobot.config.environment import variable_for
from nanobot.errors import ConfigError, NanobotError
from nanobot.tilde import expanded

if TYPE_CHECKING:
    from nanobot.cli.onboard.options import OnboardOptions
    from nanobot.config.settings import Settings

_HELLO = """\
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
    return finish.finish(person, replace(options, home=home), part, greets=greets)


async def _asked(person: Guide, options: OnboardOptions) -> tuple[Path, Before, Part] | None:
    """What is to be written, checked and confirmed; None where the person wants it not."""
    if options.attended:
        person.say(_HELLO)
    home = await _where(person, options)
    settings = _present(home)  # which also says where a file is none
    before = read(home, os.environ)
    steps = Steps(person, replace(options, home=home), settings, before)
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
    return expanded(folder).absolute()


def _present(home: Path) -> Settings:
    from nanobot.config.load import load_settings

    try:
        return load_settings(home)
    except ConfigError as error:
        raise NanobotError(
            f"the present configuration cannot be used:\n{error.for_people()}",
            hint="Mend that first, or move the file away to begin anew.",
        ) from None
