"""Sets WhatsApp up with a person, and checks it for `nanobot doctor`.

For a linked device the setup yields only settings. The code to scan comes with the login. Its check
is local, without connecting, because an account can connect only once at a time. For the Cloud API,
the check asks Meta for the token's number."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import asdict

from nanobot.channel import CheckFinding, CheckRequest, SetupRequest, SetupResult
from nanobot.errors import NanobotError
from nanobot.validation import Invalid, SecretStr, build
from nanobot_whatsapp.people import phone_digits
from nanobot_whatsapp.settings import WhatsAppSettings

_LINKED, _CLOUD = "linked", "cloud"
_WAYS = (
    "As a linked device (WhatsApp may ban the number)",
    "Through Meta's Cloud API (needs a business number and public https)",
)
_BAN = "WhatsApp does not permit unofficial programs as linked devices, and may ban the number."
_ASKED = (
    ("phone_number_id", "The phone number's id, from Meta's app dashboard"),
    ("access_token", "The access token of a system user"),
    ("app_secret", "The app's secret"),
    ("verify_token", "A secret word for the webhook. Enter the same one at Meta"),
    ("webhook_url", "The public address that Meta calls, such as https://example.org/whatsapp"),
)
_SECRETS = frozenset({"access_token", "app_secret", "verify_token"})

_LARGEST = 4_000_000
_LOGIN = "`nanobot channels login whatsapp`"
_ONLINE = "Is this machine online, and can it reach Meta?"
_LATER = "Check the app in Meta's dashboard, or try again later."


class _Wrong(NanobotError):
    """The answer to `key` is wrong."""

    def __init__(self, key: str, text: str, hint: str = "") -> None:
        super().__init__(text, hint=hint)
        self.key = key


async def setup(request: SetupRequest) -> SetupResult:
    """Ask for the settings that are not given. Raises `NanobotError`."""
    present = request.options
    if not isinstance(present, WhatsAppSettings | None):
        raise TypeError("the options belong to another channel")
    if not request.attended:
        number = phone_digits(request.given.get("owner", ""))
        request.person.say(f"Note: {_BAN}")
        return SetupResult({}, {}, (number,), "as a linked device", sign_in=True)
    was_cloud = present is not None and present.transport == _CLOUD
    way = await request.person.choose("How should nanobot use WhatsApp?", _WAYS, int(was_cloud))
    return await (set_up_cloud if way else set_up_linked)(request, present)


async def set_up_linked(request: SetupRequest, present: WhatsAppSettings | None) -> SetupResult:
    """Set up a linked device, of the owner's number or a separate one."""
    person = request.person
    person.say(
        f"{_BAN} Use a separate number for nanobot that you can afford to lose. It also works with "
        "your own number, in the chat with yourself. You need Node.js 20 or newer on this machine."
    )
    owners = await ask_owner(request)
    own = present is not None and present.self_chat
    values: dict[str, str | bool] = {}
    if present is not None and present.transport != _LINKED:
        values |= {"transport": _LINKED, "webhook_url": ""}
    if await person.confirm("Do you want to link that same number?", default=own) != own:
        values["self_chat"] = not own
    return SetupResult(values, {}, owners, "as a linked device", sign_in=True)


async def set_up_cloud(request: SetupRequest, present: WhatsAppSettings | None) -> SetupResult:
    """Ask until Meta accepts the answers. Only rejected answers are asked again."""
    from nanobot.channel.http import HttpFault

    person = request.person
    person.say("docs/channels/whatsapp.md explains the setup at Meta.")
    asked = {key: current_value(present, key) for key, _ in _ASKED}
    asked["verify_token"] = asked["verify_token"] or secrets.token_hex(12)
    hidden = _SECRETS if current_value(present, "verify_token") else _SECRETS - {"verify_token"}
    wrong, who, unchecked = [*asked], "through the Cloud API", False
    while wrong:
        for key, question in [one for one in _ASKED if one[0] in wrong]:
            asked[key] = await person.ask(question, asked[key], secret=key in hidden)
        try:
            who, wrong = await check_answers(request, present, asked), []
        except _Wrong as error:
            person.say(error.for_people())
            wrong = [error.key]
        except HttpFault as error:
            person.say(f"Meta did not identify the number: {error}.\n  {_ONLINE}")
            unchecked = await person.confirm(
                "Keep your answers without checking them, and continue?"
            )
            wrong = [] if unchecked else [*asked]
    given = {key: asked.pop(key) for key in _SECRETS}
    values: dict[str, str | bool] = {"transport": _CLOUD, **asked}
    if present is not None and present.self_chat:
        values["self_chat"] = False
    return SetupResult(values, given, await ask_owner(request), who, unchecked=unchecked)


def current_value(present: WhatsAppSettings | None, key: str) -> str:
    """Return a current setting, or empty."""
    value = getattr(present, key) if present is not None else ""
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)


async def check_answers(
    request: SetupRequest, present: WhatsAppSettings | None, asked: dict[str, str]
) -> str:
    """Check the answers and return the account, for people. Raises `_Wrong` for a wrong answer, and
    `HttpFault` if Meta could not check it."""
    values: dict[str, object] = asdict(present) if present else {}
    values |= {"transport": _CLOUD, "self_chat": False, **asked}
    try:
        options = build(WhatsAppSettings, values)
    except Invalid as error:
        (fault, *_) = error.faults
        key = str(fault.key[0])
        (asked_of,) = re.findall("^[^,;]+", dict(_ASKED).get(key, key))
        raise _Wrong(key, f"{asked_of} {fault.message}") from None
    if not request.test:
        return "through the Cloud API"
    from nanobot_whatsapp.cloud.graph import Graph, Refused

    graph = Graph(options)
    try:
        me = await graph.whoami()
    except Refused as error:
        if (off := error.as_channel_off()) is None:
            raise
        key = "access_token" if error.kind == "token" else "phone_number_id"
        raise _Wrong(key, str(off), off.hint) from None
    finally:
        await graph.close()
    who = f"+{me.number} ({me.name})"
    request.person.say(f"Meta recognizes this number: {who}")
    return who


async def ask_owner(request: SetupRequest) -> tuple[str, ...]:
    """Ask for the owner's number."""
    while True:
        default = "".join(request.owners[:1])
        answer = await request.person.ask("The number that you write from", default)
        if answer == default and request.owners:
            return ()
        try:
            return (phone_digits(answer),)
        except NanobotError as error:
            request.person.say(error.for_people())


async def check(request: CheckRequest) -> Sequence[CheckFinding]:
    """Check whether the transport can work."""
    options = request.options
    if not isinstance(options, WhatsAppSettings):
        raise TypeError("the options belong to another channel")
    if options.transport == "cloud":
        return [await check_cloud(options, request.seconds)]
    return await asyncio.to_thread(check_machine, options, request.state_folder)


def check_machine(options: WhatsAppSettings, folder: Path) -> list[CheckFinding]:
    """Check for Node.js, the helper and an account. Blocks. Reads only."""
    from nanobot_whatsapp.linked.install import bridge_program, find_node

    found = []
    try:
        found.append(CheckFinding("ok", f"Node.js is {find_node(options.node)}"))
    except NanobotError as error:
        found.append(CheckFinding("fail", str(error), error.hint))
    try:
        if bridge_program(folder) is not None:
            found.append(CheckFinding("ok", "the helper is installed"))
        else:
            text = "the helper for this version of nanobot is not installed"
            found.append(CheckFinding("fail", text, f"To install it, run {_LOGIN}."))
    except NanobotError as error:
        found.append(CheckFinding("fail", str(error), error.hint))
    return [*found, check_account(folder / "auth" / "creds.json")]


def check_account(path: Path) -> CheckFinding:
    """Check the linked account. Reads nothing else in the file."""
    try:
        with path.open("rb") as file:
            known = json.loads(file.read(_LARGEST))
    except FileNotFoundError:
        known = {}
    except (OSError, ValueError, RecursionError):
        hint = f"If the channel does not start, run {_LOGIN}."
        return CheckFinding("warn", "the stored account can't be read", hint)
    me = known.get("me") if isinstance(known, dict) else None
    if not isinstance(me, dict) or not known.get("account"):
        hint = f"Have your phone at hand, and run {_LOGIN}."
        return CheckFinding("fail", "no account is linked", hint)
    number = str(me.get("id", "")).partition("@")[0].partition(":")[0]
    return CheckFinding(
        "ok", f"linked to +{number}" if number.isdigit() else "an account is linked"
    )


async def check_cloud(options: WhatsAppSettings, seconds: float) -> CheckFinding:
    """Ask Meta for the token's number."""
    from nanobot.channel.http import HttpFault
    from nanobot_whatsapp.cloud.graph import Graph, Refused

    graph = Graph(options)
    try:
        async with asyncio.timeout(seconds):
            identity = await graph.whoami()
    except TimeoutError:
        return CheckFinding("fail", f"Meta did not answer within {seconds:.0f} s", _ONLINE)
    except Refused as error:
        if (off := error.as_channel_off()) is not None:
            return CheckFinding("fail", str(off), off.hint)
        return CheckFinding("fail", f"Meta did not identify the number: {error}", _LATER)
    except HttpFault as error:
        return CheckFinding("fail", f"Meta cannot be reached: {error}", _ONLINE)
    finally:
        await graph.close()
    return CheckFinding("ok", f"Meta recognizes the number +{identity.number} ({identity.name})")
