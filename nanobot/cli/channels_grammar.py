"""The grammar of `nanobot channels`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nanobot.cli.grammar import add, add_json, choices, home_of

if TYPE_CHECKING:
    from nanobot.cli.grammar import Commands


def add_channels(commands: Commands) -> None:
    """`nanobot channels …`."""
    channels = commands.add_parser(
        "channels",
        help="sign in at a channel, see how they are doing",
        description="Sign in at a channel, and see how the channels are doing.",
    )
    what = choices(channels)
    add_json(add(what, "status", "how each channel is doing", _status))
    login = add(what, "login", "sign in at a channel that wants it, such as whatsapp", _login)
    login.add_argument("name", metavar="NAME", help="the channel: whatsapp")
    login.add_argument(
        "--pair-code",
        metavar="NUMBER",
        default="",
        help="get a code to type into the phone with this number, instead of a picture to scan",
    )


def _status(options: argparse.Namespace) -> int:
    from nanobot.cli.channels import status

    return status(home_of(options), as_json=options.json)


def _login(options: argparse.Namespace) -> int:
    from nanobot.cli.channels import login

    return login(home_of(options), options.name, options.pair_code)
