"""`nanobot channels` and `nanobot pair`: the state of the channels, and access to them.

The adapter signs in here, in the person's terminal. A running gateway releases the channel for that
time. Without a gateway, the home is locked so that none can start."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot.cli.client import Client, Data
from nanobot.cli.command import Options, Parser, settings_of, table, words
from nanobot.cli.gateway import in_gateway_or_here, own_home
from nanobot.errors import NanobotError
from nanobot.text import clean, duration

if TYPE_CHECKING:
    from nanobot.channel import Login, LoginRequest


def add_channels(channels: Parser) -> None:
    what = channels.group("Sign in to a channel, or show the status of each channel.")
    what.operation("status", "show the status of each channel", "channels.status", format_status)
    login = what.add("login", "sign in to a channel that requires it, such as whatsapp", run_login)
    login.argument("name", "NAME", "the channel (whatsapp)")
    code = (
        "link the phone that has this number by typing a code on it, instead of scanning a QR code"
    )
    login.option("--pair-code", "NUMBER", code)


def run_login(options: Options) -> int:
    login(options.home, options.name, options.pair_code)
    return 0


def login(home: Path, name: str, number: str) -> None:
    """Sign in to a channel. Raises `NanobotError`."""
    import asyncio

    from nanobot.app.base import make_home, secret_values
    from nanobot.app.sign_in import login_of, login_request
    from nanobot.clock import SystemClock
    from nanobot.logs import log_to_console
    from nanobot.security.redaction import Redactor

    settings = settings_of(home)
    sign_in, clock = login_of(name), SystemClock(settings.agent.timezone)
    request = login_request(settings, name, _say, clock, number=number)
    log_to_console("warning", Redactor(secret_values(settings)), settings.agent.timezone)
    make_home(home)
    with ExitStack() as stack:
        in_gateway_or_here(
            lambda: stack.enter_context(borrow_channel(home, name)),
            lambda: stack.enter_context(own_home(home)),
        )
        request.state_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        asyncio.run(_sign_in(sign_in, request))


async def _sign_in(sign_in: Login, request: LoginRequest) -> None:
    await sign_in(request)


@contextmanager
def borrow_channel(home: Path, name: str) -> Iterator[None]:
    """Borrow the channel from the running gateway while inside. Raises `NoGateway` if none runs."""

    def tell_gateway(operation: str) -> None:
        with Client(home) as client:
            client.ask(operation, {"name": name})

    tell_gateway("channels.borrow")
    try:
        yield None
    finally:
        with suppress(NanobotError):  # it has ended, and a new one starts all channels
            tell_gateway("channels.return")


def _say(text: str) -> None:
    sys.stdout.write(f"{clean(text)}\n")
    sys.stdout.flush()


def format_status(data: Data) -> str:
    from nanobot.bus.events import TERMINAL

    channels = [c for c in data.records("channels") if c.field("name") != TERMINAL]
    if not channels:
        return "No channel is enabled. Enable one under `channels:` in config.yaml.\n"
    rows = (one.fields("name", "state", "who") for one in channels)
    problems = ((one.field("name"), one.field("detail", 600)) for one in channels)
    shown = "".join(f"\n{name}: {problem}\n" for name, problem in problems if problem)
    return table(rows, "channel", "state", "account") + shown


_NOBODY = "No pending requests and no approvals.\n"
_NAMES = "People choose these names themselves. Approve only a code that someone gave you.\n"


def add_pair(pair: Parser) -> None:
    what = pair.group(
        "Give people and groups access. A new person gets a code, which you approve here."
    )
    what.operation("list", "list requests and approvals", "pair.list", format_access)
    approve = what.operation("approve", "approve a person or a group", "pair.approve")
    code = "their code, or CHANNEL:ID from `pair list`"
    approve.argument("code", "CODE", code, type=words)
    approve.flag("--owner", "approve them as the owner (you)")
    revoke = what.operation("revoke", "revoke access", "pair.revoke")
    revoke.argument(
        "id", "CHANNEL:ID", "the id from `pair list`, such as telegram:12345", type=_address
    )


def _address(text: str) -> str:
    channel, colon, id = text.partition(":")
    if not (channel and colon and id):
        raise argparse.ArgumentTypeError(f"{text!r} must have the form CHANNEL:ID")
    return text


def format_access(data: Data) -> str:
    blocks = []
    if requests := list(map(_format_request, data.records("requests"))):
        shown = table(requests, "code", "expires in", "id", "name", margin=2)
        blocks.append(f"requests in the last hour\n{shown}{_NAMES}")
    if approved := list(map(_format_approval, data.records("approved"))):
        shown = table(approved, "id", "since", "", "name", margin=2)
        blocks.append(f"approved through pairing\n{shown}")
    return "\n".join(blocks) or _NOBODY


def _format_request(one: Data) -> tuple[str, ...]:
    seconds = one.number("seconds_left")
    name = one.field("name")
    if one.field("kind") == "group":
        name += " (group)"
    left = duration(seconds) if seconds else "expired"
    return one.field("code") or "-", left, one.field("address"), name


def _format_approval(one: Data) -> tuple[str, ...]:
    role = "owner" if one.get("owner") is True else one.field("kind")
    return one.field("address"), one.field("since")[:10], role, one.field("name")
