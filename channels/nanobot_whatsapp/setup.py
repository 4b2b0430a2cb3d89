"""Setting WhatsApp up with a person: as a linked device, or by Meta's Cloud API.

For a linked device only settings come out of this; the code to scan comes with signing in. For the
Cloud API Meta is asked which number the token is for.
"""

from __future__ import annotations

import secrets

from pydantic import SecretStr, ValidationError

from nanobot.channel.entry_points import SetupRequest, SetupResult
from nanobot.errors import NanobotError
from nanobot_whatsapp.people import phone_digits
from nanobot_whatsapp.settings import WhatsAppSettings

_LINKED, _CLOUD = "linked", "cloud"
_WAYS = (
    "As a linked device of a number that has WhatsApp: you scan a code. WhatsApp may ban the "
    "number for it",
    "By Meta's Cloud API, with a number of a business and a public https address",
)
_BAN = "WhatsApp permits no unofficial programs as linked devices, and may ban the number."
_ASKED = (
    ("phone_number_id", "The phone number's id, from Meta's app dashboard"),
    ("access_token", "The access token of a system user"),
    ("app_secret", "The app's secret"),
    ("verify_token", "A word for both sides of the webhook; tell Meta the same"),
    ("webhook_url", "The public address that Meta calls, such as https://example.org/whatsapp"),
)
_SECRETS = frozenset({"access_token", "app_secret", "verify_token"})


async def setup(request: SetupRequest) -> SetupResult:
    """Ask for what is not given. Raises `NanobotError`."""
    present = request.options
    if not isinstance(present, WhatsAppSettings | None):
        raise TypeError("the options are those of another channel")
    if not request.attended:
        number = phone_digits(request.given.get("owner", ""))
        request.person.say(f"Note: {_BAN}")
        return SetupResult({}, {}, (number,), "as a linked device", sign_in=True)
    was_cloud = present is not None and present.transport == _CLOUD
    way = await request.person.choose("How shall WhatsApp be reached?", _WAYS, int(was_cloud))
    return await (_by_cloud if way else _linked)(request, present)


async def _linked(request: SetupRequest, present: WhatsAppSettings | None) -> SetupResult:
    """As a device of the owner's own number, or of one for nanobot alone."""
    person = request.person
    person.say(
        f"{_BAN} Best is a number of its own for nanobot, which you can do without; it also works "
        "with yours, in the chat that you have with yourself. Node.js 20 or newer has to be "
        "installed here."
    )
    owners = await _owner(request)
    own = present is not None and present.self_chat
    values: dict[str, str | bool] = {}
    if present is not None and present.transport != _LINKED:
        values |= {"transport": _LINKED, "webhook_url": ""}
    if await person.confirm("Will you link that very number?", default=own) != own:
        values["self_chat"] = not own
    return SetupResult(values, {}, owners, "as a linked device", sign_in=True)


async def _by_cloud(request: SetupRequest, present: WhatsAppSettings | None) -> SetupResult:
    """Asks until Meta accepts the answers; what was right need not be typed again."""
    request.person.say("docs/channels/whatsapp.md leads through Meta's side of it.")
    asked = {key: _known(present, key) for key, _ in _ASKED}
    asked["verify_token"] = asked["verify_token"] or secrets.token_hex(12)
    shown = {"verify_token"} if present is None or not _known(present, "verify_token") else set()
    while True:
        for key, question in _ASKED:
            is_hidden = key in _SECRETS and key not in shown
            asked[key] = await request.person.ask(question, asked[key], secret=is_hidden)
        try:
            who = await _checked(request, present, asked)
            break
        except NanobotError as error:
            request.person.say(error.for_people())
    values: dict[str, str | bool] = {"transport": _CLOUD}
    if present is not None and present.self_chat:
        values["self_chat"] = False
    values |= {key: value for key, value in asked.items() if key not in _SECRETS}
    hidden = {key: value for key, value in asked.items() if key in _SECRETS}
    return SetupResult(values, hidden, await _owner(request), who)


def _known(present: WhatsAppSettings | None, key: str) -> str:
    """What is set; empty for nothing."""
    value = getattr(present, key) if present is not None else ""
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)


async def _checked(
    request: SetupRequest, present: WhatsAppSettings | None, asked: dict[str, str]
) -> str:
    """Which number it is. Raises `NanobotError` for what cannot be."""
    values: dict[str, object] = dict(present) if present else {}
    values |= {"transport": _CLOUD, "self_chat": False, **asked}
    try:
        options = WhatsAppSettings.model_validate(values)
    except ValidationError as error:
        key, said = error.errors()[0]["loc"][0], error.errors()[0]["msg"]
        raise NanobotError(f"{key} {said.removeprefix('Value error, ')}") from None
    if not request.test:
        return "by the Cloud API"
    from nanobot_whatsapp.cloud.graph import Graph

    graph = Graph(options)
    try:
        me = await graph.whoami()
    finally:
        await graph.close()
    who = f"+{me.number} ({me.name})"
    request.person.say(f"Meta knows this number: {who}")
    return who


async def _owner(request: SetupRequest) -> tuple[str, ...]:
    """The number that the owner writes from."""
    while True:
        default = "".join(request.owners[:1])
        answer = await request.person.ask("The number that you write from", default)
        if answer == default and request.owners:
            return ()
        try:
            return (phone_digits(answer),)
        except NanobotError as error:
            request.person.say(error.for_people())
