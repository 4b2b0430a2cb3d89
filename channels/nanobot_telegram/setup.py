"""Setting Telegram up with a person: the bot's token, tried out, and who its owner is.

To find the owner it looks at what was written to the bot, and confirms none of it to Telegram: the
gateway gets the same messages afterwards and answers them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass

from pydantic import ValidationError
from telegram.error import Conflict, InvalidToken, TelegramError

from nanobot.channel import Person, SetupRequest, SetupResult
from nanobot.errors import NanobotError
from nanobot_telegram.client import Identity, TelegramClient, token_refused
from nanobot_telegram.settings import TelegramSettings

_HOW = """\
A bot is made in a chat with @BotFather (https://t.me/BotFather): send /newbot, choose a name and \
a username, and it gives you a token, such as 123456789:AAE…"""
_LOOK_SECONDS = 2
_ID = re.compile(r"[0-9]{1,20}", re.ASCII)
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Writer:
    """Somebody who wrote to the bot in private, and what they wrote last: its text, empty where it
    has none, and the number of its update."""

    id: str
    name: str
    text: str
    update: int

    @property
    def shown(self) -> str:
        """Who wrote what."""
        said = f"wrote: “{self.text}”" if self.text else "sent something without words"
        return f"{self.name} (id {self.id}) {said}"


class Unreached(NanobotError):
    """The platform did not answer: nothing is known about what was typed."""


async def setup(request: SetupRequest) -> SetupResult | None:
    """Ask for what is not given. Raises `NanobotError`."""
    person, present = request.person, request.options
    if not isinstance(present, TelegramSettings | None):
        raise TypeError("the options are those of another channel")
    known = present.token.get_secret_value() if present else ""
    given = request.given.get("token", "")
    if request.attended and not known and not given:
        person.say(_HOW)
    again = ""
    while True:
        token = given or again or await person.ask("The bot's token", known, secret=True)
        again = ""
        if not token:
            person.say("Telegram stays as it is.")
            return None
        try:
            options = _options(token, request.given.get("base_url", ""), present)
            return await _with_token(request, options)
        except Unreached as error:
            if not request.attended:
                raise
            person.say(f"{error}.\n  Is this machine online, and may it reach Telegram?")
            if not await person.confirm("Try it once more?"):
                person.say("Telegram stays as it is.")
                return None
            again = token
        except NanobotError as error:
            if not request.attended or given:
                raise
            person.say(f"{error.for_people()}\nType it again, or press Enter to leave this out.")
            known = ""


def writers(updates: Sequence[object]) -> tuple[Writer, ...]:
    """Who wrote to the bot in private, the latest first."""
    found: dict[str, Writer] = {}
    for update in updates:
        message = _object(_object(update).get("message"))
        sender, chat = _object(message.get("from")), _object(message.get("chat"))
        if chat.get("type") != "private" or sender.get("is_bot") or "id" not in sender:
            continue
        id = str(sender["id"])
        names = (sender.get("first_name"), sender.get("last_name"))
        username = f"(@{sender['username']})" if sender.get("username") else ""
        name = " ".join(str(part) for part in (*names, username) if part)
        found.pop(id, None)
        text = " ".join(str(message.get("text") or "").split())
        number = _object(update).get("update_id")
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        found[id] = Writer(id, name, shown, number if isinstance(number, int) else 0)
    return tuple(reversed(found.values()))


def _options(token: str, base_url: str, present: TelegramSettings | None) -> TelegramSettings:
    """The settings to try out."""
    values: dict[str, object] = dict(present) if present else {}
    values |= {"token": token} | ({"base_url": base_url} if base_url else {})
    try:
        return TelegramSettings.model_validate(values)
    except ValidationError as error:
        key, said = error.errors()[0]["loc"][0], error.errors()[0]["msg"]
        raise NanobotError(f"the {key} {said.removeprefix('Value error, ')}") from None


async def _with_token(request: SetupRequest, options: TelegramSettings) -> SetupResult:
    owners = [request.given["owner"]] if "owner" in request.given else []
    if not all(map(_ID.fullmatch, owners)):
        hint = "Names can change hands. Your id is a number; @userinfobot tells it."
        raise NanobotError("your id at Telegram is a number", hint=hint)
    who = ""
    if request.test:
        async with aclosing(TelegramClient(options, request.clock)) as client:
            me = await _checked(client)
            who = f"@{me.username}"
            request.person.say(f"Telegram knows this bot: {who}, https://t.me/{me.username}")
            if request.attended and not owners:
                owners = await _owner(request, client, me)
    elif request.attended and not owners:
        owners = await _typed_owner(request)
    values = {"base_url": url} if (url := request.given.get("base_url")) else {}
    present = request.options
    old = present.token if isinstance(present, TelegramSettings) else None
    anew = old != options.token
    secrets = {"token": options.token.get_secret_value()} if anew else {}
    return SetupResult(values, secrets, owners, who)


async def _checked(client: TelegramClient) -> Identity:
    try:
        return await client.me()
    except InvalidToken:
        refused = token_refused()
        raise NanobotError(str(refused), hint="Copy it again from @BotFather.") from None
    except TelegramError as error:
        hint = "Is this machine online, and may it reach Telegram? --no-test leaves this out."
        raise Unreached(f"Telegram cannot be reached: {error}", hint=hint) from None


async def _owner(request: SetupRequest, client: TelegramClient, me: Identity) -> list[str]:
    """Find the owner by what they write; empty where they stay as they are, or are left open."""
    person = request.person
    if request.owners:
        known = ", ".join(request.owners)
        if await person.confirm(f"Your id there is {known}. Shall it stay so?"):
            return []
    person.say(
        f"Now write something to the bot (https://t.me/{me.username}), so that it knows you: it "
        "obeys nobody else."
    )
    refused: set[Writer] = set()
    while True:
        answer = await person.ask("Press Enter when you have, or type your id, or none")
        if answer.lower() == "none":
            person.say("Then write to the bot later: it gives you a code to let yourself in with.")
            return []
        if _ID.fullmatch(answer):
            return [answer]
        if answer:
            person.say(
                "An id is a number. A name (@…) will not do, because names can change hands."
            )
            continue
        if owner := await _among(person, await _who_wrote(request, client), refused):
            return [owner]


async def _among(person: Person, found: Sequence[Writer], refused: set[Writer]) -> str:
    """The id of who says that it was them; empty for nobody. Who is `refused` is asked about again
    once they wrote something else."""
    for writer in found:
        if writer in refused:
            continue
        if await person.confirm(f"{writer.shown} — is that you?", default=False):
            return writer.id
        refused.add(writer)
    said = "Nobody else has written. If it was you, write to the bot once more."
    person.say(said if refused else "Nobody has written to the bot yet.")
    return ""


async def _typed_owner(request: SetupRequest) -> list[str]:
    """Ask for the id where nothing is looked up."""
    default = "".join(request.owners[:1])
    while True:
        answer = await request.person.ask("Your id there (Enter to leave it open)", default)
        if not answer or answer == default:
            return []
        if _ID.fullmatch(answer):
            return [answer]
        request.person.say("An id is a number.")


async def _who_wrote(request: SetupRequest, client: TelegramClient) -> tuple[Writer, ...]:
    try:
        return writers(await client.get_updates(None, _LOOK_SECONDS))
    except Conflict:
        said = "Another program takes this bot's messages, so they cannot be seen from here."
    except TelegramError as error:
        said = f"Telegram does not say what was written: {error}"
    request.person.say(f"{said} Type your id instead; @userinfobot tells it.")
    return ()


def _object(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}
