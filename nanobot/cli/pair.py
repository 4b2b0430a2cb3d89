"""`nanobot pair`: who may talk to this nanobot, beside those in config.yaml.

The work is done by the running gateway, so that it holds at once, or on the files where none runs.
Names and ids are strangers' words: what is printed is cleaned first.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nanobot.cli.command import (
    Data,
    add,
    add_group,
    asked,
    field,
    indent,
    number,
    put_data,
    put_text,
    records,
    table,
    text,
    warning,
    words,
)
from nanobot.text import duration
from nanobot_cli.text import one_line

if TYPE_CHECKING:
    from nanobot.cli.command import Commands

_NOBODY = "Nobody has asked within the hour, and nobody was let in by pairing.\n"
_NAMES = "Names are what people call themselves: approve the code that somebody gives you.\n"


def add_pair(commands: Commands) -> None:
    """`nanobot pair …`."""
    what = add_group(
        commands,
        "pair",
        "let people and groups talk to this nanobot",
        "Let people and groups talk to this nanobot. Whoever writes to it for the first"
        " time gets a code, which you approve here.",
    )
    add(what, "list", "who asked, and who was let in", _list).json()
    approve = add(what, "approve", "let somebody in", _approve)
    approve.argument(
        "code",
        "CODE",
        "the code that they were given, or CHANNEL:ID as `pair list` shows it",
        type=words,
    )
    approve.flag("--owner", "this is you: make them the owner")
    approve.json()
    revoke = add(what, "revoke", "shut somebody out again", _revoke)
    revoke.argument("id", "CHANNEL:ID", "as `pair list` shows it: telegram:12345", type=_address)
    revoke.json()


def _address(text: str) -> str:
    channel, colon, id = text.partition(":")
    if not (channel and colon and id):
        raise argparse.ArgumentTypeError(f"{text!r} is not written as CHANNEL:ID")
    return text


def _list(options: argparse.Namespace) -> int:
    return put_data(options, asked(options.home, "pair.list"), _list_text)


def _approve(options: argparse.Namespace) -> int:
    given = {"code": options.code, "owner": options.owner}
    return _put(options, asked(options.home, "pair.approve", **given))


def _revoke(options: argparse.Namespace) -> int:
    return _put(options, asked(options.home, "pair.revoke", id=options.id))


def _put(options: argparse.Namespace, data: Data) -> int:
    """Without the marks that keep a chat from linking names."""
    return put_text(options, {**data, "text": text(data, "text").replace("`", "")})


def _list_text(data: Data) -> str:
    blocks = []
    if requests := [_request(one) for one in records(data, "requests")]:
        rows = [("code", "holds for", "id", "name"), *requests]
        blocks.append("asked within the hour\n" + indent(table(rows, 2)) + _NAMES)
    if approved := [_known(one) for one in records(data, "approved")]:
        rows = [("id", "since", "", "name"), *approved]
        blocks.append("let in by pairing\n" + indent(table(rows, 2)))
    return warning(data) + ("\n".join(blocks) or _NOBODY)


def _request(one: Data) -> tuple[str, ...]:
    seconds = number(one, "seconds_left")
    name = field(one, "name")
    if field(one, "kind") == "group":
        name += " (a group)"
    if isinstance(others := one.get("namesakes"), list) and others:
        name += f" (careful: {one_line(', '.join(map(str, others)), 80)} goes by the same name)"
    left = duration(seconds) if seconds else "over"
    return field(one, "code") or "-", left, field(one, "address"), name


def _known(one: Data) -> tuple[str, ...]:
    role = "owner" if one.get("owner") is True else field(one, "kind")
    return field(one, "address"), field(one, "since")[:10], role, field(one, "name")
