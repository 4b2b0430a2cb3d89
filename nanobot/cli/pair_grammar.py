"""The grammar of `nanobot pair`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nanobot.cli.grammar import add, add_json, choices, home_of, words

if TYPE_CHECKING:
    from nanobot.cli.grammar import Commands


def add_pair(commands: Commands) -> None:
    """`nanobot pair …`."""
    pair = commands.add_parser(
        "pair",
        help="let people and groups talk to this nanobot",
        description="Let people and groups talk to this nanobot. Whoever writes to it for the first"
        " time gets a code, which you approve here.",
    )
    what = choices(pair)
    add_json(add(what, "list", "who asked, and who was let in", _list))
    approve = add(what, "approve", "let somebody in", _approve)
    approve.add_argument(
        "code",
        type=words,
        metavar="CODE",
        help="the code that they were given, or CHANNEL:ID as `pair list` shows it",
    )
    approve.add_argument("--owner", action="store_true", help="this is you: make them the owner")
    add_json(approve)
    revoke = add(what, "revoke", "shut somebody out again", _revoke)
    revoke.add_argument(
        "id", type=_address, metavar="CHANNEL:ID", help="as `pair list` shows it: telegram:12345"
    )
    add_json(revoke)


def _address(text: str) -> str:
    channel, colon, id = text.partition(":")
    if not (channel and colon and id):
        raise argparse.ArgumentTypeError(f"{text!r} is not written as CHANNEL:ID")
    return text


def _list(options: argparse.Namespace) -> int:
    from nanobot.cli.pair import show

    return show(home_of(options), as_json=options.json)


def _approve(options: argparse.Namespace) -> int:
    from nanobot.cli.pair import change

    given = {"code": options.code, "owner": options.owner}
    return change(home_of(options), "pair.approve", given, as_json=options.json)


def _revoke(options: argparse.Namespace) -> int:
    from nanobot.cli.pair import change

    return change(home_of(options), "pair.revoke", {"id": options.id}, as_json=options.json)
