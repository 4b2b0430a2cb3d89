"""Sets Telegram up with a person (tries the bot's token and finds its owner), and checks it for
`nanobot doctor` (the token, and whether calls get through).

Changes nothing at Telegram and acknowledges no update: a gateway may be running, and still gets the
messages that identified the owner."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import aclosing
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import asdict, replace
from telegram.error import Conflict, InvalidToken, TelegramError

from nanobot.channel import CheckFinding, CheckRequest, SetupRequest, SetupResult
from nanobot.errors import NanobotError
from nanobot.text import one_line
from nanobot.validation import Invalid, build
from nanobot_telegram.client import TelegramClient, token_refused
from nanobot_telegram.settings import TelegramSettings

_HOW = """\
To create a bot, chat with @BotFather (https://t.me/BotFather): send /newbot, and choose a name \
and a username. It then gives you a token, such as 123456789:AAE…"""
_UNREACHABLE = (
    "Try again",
    "Keep the token without checking it, and continue",
    "Leave Telegram unchanged",
)
_LOOK_SECONDS = 2
_ID = re.compile(r"[0-9]{1,20}", re.ASCII)
_SHOWN = 60
_RECENTLY = timedelta(hours=1)


class Writer(Struct, frozen=True):
    """A person who wrote to the bot in private. `text` is the latest text, if any, and `update` the
    number of its update."""

    id: str
    name: str
    text: str
    update: int

    @property
    def summary(self) -> str:
        """The person and their text."""
        said = f"wrote: “{self.text}”" if self.text else "sent a message without text"
        return f"{self.name} (id {self.id}) {said}"


class _Unreachable(NanobotError):
    """Telegram did not answer, so the token was not checked."""


async def setup(request: SetupRequest) -> SetupResult | None:
    """Ask for the settings that are not given. Raises `NanobotError`."""
    person, present = request.person, request.options
    if not isinstance(present, TelegramSettings | None):
        raise TypeError("the options belong to another channel")
    known = present.token.get_secret_value() if present else ""
    given = request.given.get("token", "")
    if request.attended and not known and not given:
        person.say(_HOW)
    token = given or await person.ask("The bot's token", known, secret=True)
    while token:
        try:
            return await try_token(request, present, token)
        except _Unreachable as error:
            if not request.attended:
                raise
            person.say(f"{error}.\n  Is this machine online, and can it reach Telegram?")
            what_now = await person.choose("What now?", _UNREACHABLE)
            if what_now == 1:
                found = await try_token(replace(request, test=False), present, token)
                return replace(found, unchecked=True)
            token = "" if what_now else token
        except NanobotError as error:
            if not request.attended or given:
                raise
            person.say(f"{error.for_people()}\nType it again, or press Enter to skip Telegram.")
            token = await person.ask("The bot's token", "", secret=True)
    person.say("Telegram is unchanged.")
    return None


def writers(updates: Sequence[object]) -> tuple[Writer, ...]:
    """Return the people who wrote to the bot in private, the latest first."""
    found: dict[str, Writer] = {}
    for update in map(as_object, updates):
        message, number = as_object(update.get("message")), update.get("update_id")
        sender, chat = as_object(message.get("from")), as_object(message.get("chat"))
        if chat.get("type") != "private" or sender.get("is_bot") or "id" not in sender:
            continue
        id = str(sender["id"])
        username = f"(@{sender['username']})" if sender.get("username") else ""
        names = (sender.get("first_name"), sender.get("last_name"), username)
        text = one_line(str(message.get("text") or ""), _SHOWN)
        found.pop(id, None)
        name = " ".join(str(part) for part in names if part)
        found[id] = Writer(id, name, text, number if isinstance(number, int) else 0)
    return tuple(reversed(found.values()))


async def try_token(
    request: SetupRequest, present: TelegramSettings | None, token: str
) -> SetupResult:
    """Try this token out and return the result."""
    base_url = {"base_url": request.given["base_url"]} if request.given.get("base_url") else {}
    try:
        options = build(
            TelegramSettings, {**(asdict(present) if present else {}), "token": token, **base_url}
        )
    except Invalid as error:
        raise NanobotError(f"the {error.faults[0].key[0]} {error.faults[0].message}") from None
    owners = [request.given["owner"]] if "owner" in request.given else []
    if not all(map(_ID.fullmatch, owners)):
        hint = "Names can change hands. Your id is a number, which @userinfobot shows."
        raise NanobotError("your Telegram id must be a number", hint=hint)
    who = ""
    if request.test:
        async with aclosing(TelegramClient(options, request.clock)) as client:
            who = f"@{await fetch_username(client)}"
            link = f"https://t.me/{who[1:]}"
            request.person.say(f"Telegram recognizes this bot: {who}, {link}")
            if request.attended and not owners:
                owners = await find_owner(request, client, link)
    elif request.attended and not owners:
        owners = await ask_owner(request)
    is_new = present is None or present.token != options.token
    secrets = {"token": options.token.get_secret_value()} if is_new else {}
    return SetupResult(base_url, secrets, owners, who)


async def fetch_username(client: TelegramClient) -> str:
    try:
        return (await client.me()).username
    except InvalidToken:
        refused = token_refused()
        raise NanobotError(str(refused), hint="Copy it again from @BotFather.") from None
    except TelegramError as error:
        hint = "Is this machine online, and can it reach Telegram? --no-test skips this check."
        raise _Unreachable(f"Telegram cannot be reached: {error}", hint=hint) from None


async def find_owner(request: SetupRequest, client: TelegramClient, link: str) -> list[str]:
    """Identify the owner by a message to the bot. Empty if the owner stays as configured, or stays
    open."""
    person = request.person
    if request.owners:
        known = ", ".join(request.owners)
        if await person.confirm(f"Your Telegram id is {known}. Keep it?"):
            return []
    person.say(f"Now send the bot a message ({link}), so that nanobot knows who its owner is.")
    refused: set[Writer] = set()
    while True:
        answer = await person.ask(
            "Press Enter when you have sent it, or type your id, or type none"
        )
        if answer.lower() == "none":
            person.say("You can write to the bot later. It will then send you a pairing code.")
            return []
        if _ID.fullmatch(answer):
            return [answer]
        if answer:
            person.say("Your id is a number. A name (@…) won't work, because it can change hands.")
            continue
        new = [one for one in await find_writers(request, client) if one not in refused]
        for writer in new:  # ask again only after another message
            if await person.confirm(f"{writer.summary} — is that you?", default=False):
                return [writer.id]
            refused.add(writer)
        said = "No one else has written. If it was you, write to the bot again."
        person.say(said if refused else "No one has written to the bot yet.")


async def ask_owner(request: SetupRequest) -> list[str]:
    """Ask for the owner's id."""
    default = "".join(request.owners[:1])
    while True:
        answer = await request.person.ask("Your Telegram id (leave empty to skip)", default)
        if not answer or answer == default:
            return []
        if _ID.fullmatch(answer):
            return [answer]
        request.person.say("Your id is a number.")


async def find_writers(request: SetupRequest, client: TelegramClient) -> tuple[Writer, ...]:
    try:
        return writers(await client.get_updates(None, _LOOK_SECONDS))
    except Conflict:
        said = "Another program is receiving this bot's messages, so nanobot can't see them."
    except TelegramError as error:
        said = f"Telegram did not return the messages: {error}."
    request.person.say(f"{said} Type your id instead, which @userinfobot shows.")
    return ()


def as_object(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


async def check(request: CheckRequest) -> Sequence[CheckFinding]:
    """Check whether the bot can be reached and, in webhook mode, can be called."""
    options = request.options
    if not isinstance(options, TelegramSettings):
        raise TypeError("the options belong to another channel")
    async with aclosing(TelegramClient(options, request.clock)) as client:
        try:
            async with asyncio.timeout(request.seconds):
                me = await client.me()
                found = [CheckFinding("ok", f"Telegram recognizes the bot @{me.username}")]
                if options.webhook_url:
                    found.append(
                        await check_webhook(client, options.webhook_url, request.clock.now())
                    )
                return found
        except InvalidToken:
            refused = token_refused()
            return [CheckFinding("fail", str(refused), refused.hint)]
        except (TelegramError, TimeoutError) as error:
            reason = str(error) or f"no answer within {request.seconds:.0f} s"
            hint = (
                "Is this machine online? If it can't reach Telegram, set channels.telegram.proxy."
            )
            return [CheckFinding("fail", f"Telegram cannot be reached: {reason}", hint)]


async def check_webhook(client: TelegramClient, wanted: str, now: datetime) -> CheckFinding:
    """Check Telegram's report about the webhook."""
    info = await client.bot.get_webhook_info()
    if info.url != wanted:
        hint = "`nanobot gateway` registers it when it starts."
        return CheckFinding(
            "warn", f"The webhook {wanted} is not registered with Telegram yet", hint
        )
    if info.last_error_date is not None and now - info.last_error_date < _RECENTLY:
        said = info.last_error_message or "no reason given"
        hint = "Check that the address can be reached from outside (docs/channels/telegram.md)."
        return CheckFinding("warn", f"Telegram could not call {wanted}: {said}", hint)
    return CheckFinding("ok", f"Telegram uses the webhook {wanted}")
