"""What `nanobot doctor` looks at: for a linked device what is on this machine, without connecting,
because an account that is linked connects once at a time; for the Cloud API what Meta says.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

from nanobot.channel.entry_points import CheckFinding, CheckRequest
from nanobot.errors import NanobotError
from nanobot_whatsapp.settings import WhatsAppSettings

_LARGEST = 4_000_000
_LOGIN = "`nanobot channels login whatsapp`"


async def check(request: CheckRequest) -> Sequence[CheckFinding]:
    """Whether this transport can work."""
    options = request.options
    if not isinstance(options, WhatsAppSettings):
        raise TypeError("the options are those of another channel")
    if options.transport == "cloud":
        return [await _cloud(options, request.seconds)]
    return await asyncio.to_thread(_linked, options, request.state_folder)


def _linked(options: WhatsAppSettings, folder: Path) -> list[CheckFinding]:
    """Blocks; reads only, and connects nowhere."""
    return [_node(options.node), _helper(folder), _account(folder / "auth" / "creds.json")]


def _node(setting: str) -> CheckFinding:
    """Whether there is a Node.js that is new enough."""
    from nanobot_whatsapp.linked.install import find_node

    try:
        return CheckFinding("ok", f"Node.js is {find_node(setting)}")
    except NanobotError as error:
        return CheckFinding("fail", str(error), error.hint)


def _helper(folder: Path) -> CheckFinding:
    """Whether the helper of this version is installed."""
    from nanobot_whatsapp.linked.install import bridge_program

    try:
        program = bridge_program(folder)
    except NanobotError as error:
        return CheckFinding("fail", str(error), error.hint)
    if program is None:
        text = "the helper of this version of nanobot is not installed"
        return CheckFinding("fail", text, f"{_LOGIN} installs it.")
    return CheckFinding("ok", "its helper is installed")


def _account(path: Path) -> CheckFinding:
    """Whose device this is; what else is in the file is not looked at."""
    try:
        with path.open("rb") as file:
            known = json.loads(file.read(_LARGEST))
    except FileNotFoundError:
        known = {}
    except (OSError, ValueError, RecursionError):
        hint = f"If the channel does not come up by itself: {_LOGIN}."
        return CheckFinding("warn", "what is kept of the account cannot be read", hint)
    me = known.get("me") if isinstance(known, dict) else None
    if not isinstance(me, dict) or not known.get("account"):
        hint = f"{_LOGIN} links one: have the phone at hand."
        return CheckFinding("fail", "no account is linked", hint)
    number = str(me.get("id", "")).partition("@")[0].partition(":")[0]
    return CheckFinding(
        "ok", f"linked to +{number}" if number.isdigit() else "an account is linked"
    )


async def _cloud(options: WhatsAppSettings, seconds: float) -> CheckFinding:
    """Ask Meta which number the token is for."""
    from nanobot_whatsapp.cloud.graph import Graph, GraphError, Refused

    graph = Graph(options)
    try:
        async with asyncio.timeout(seconds):
            identity = await graph.whoami()
    except TimeoutError:
        return CheckFinding("fail", f"Meta did not answer within {seconds:.0f} s", _ONLINE)
    except Refused as error:
        if (off := error.as_channel_off()) is not None:
            return CheckFinding("fail", str(off), off.hint)
        return CheckFinding("fail", f"Meta does not say which number this is: {error}", _LATER)
    except GraphError as error:
        return CheckFinding("fail", f"Meta cannot be reached: {error}", _ONLINE)
    finally:
        await graph.close()
    return CheckFinding("ok", f"Meta knows the number +{identity.number} ({identity.name})")


_ONLINE = "Is this machine online, and may it reach Meta?"
_LATER = "Look at the app in Meta's dashboard, or try again later."
