"""`nanobot pair list|approve|revoke`: who may talk to this nanobot, beside those in config.yaml.

The work is done by the running gateway, so that it holds at once, or on the files where none runs.
Names and ids are strangers' words: what is printed is cleaned first.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nanobot.cli.admin import asked, put, to_json
from nanobot.cli.show import Data, field, fitted, indent, number, records, table, text
from nanobot.times import duration
from nanobot_cli.text import clean, one_line

_NOBODY = "Nobody has asked within the hour, and nobody was let in by pairing.\n"
_NAMES = "Names are what people call themselves: approve the code that somebody gives you.\n"


def show(home: Path, *, as_json: bool) -> int:
    """`nanobot pair list`."""
    data = asked(home, "pair.list", {})
    return put(to_json(data) if as_json else fitted(_list_text(data)))


def change(home: Path, operation: str, given: Mapping[str, object], *, as_json: bool) -> int:
    """`nanobot pair approve|revoke`."""
    data = asked(home, operation, given)
    if as_json:
        return put(to_json({key: value for key, value in data.items() if key != "text"}))
    return put(fitted(clean(text(data, "text")).replace("`", "")) + "\n")


def _list_text(data: Data) -> str:
    blocks = []
    if trouble := text(data, "trouble"):
        blocks.append(f"warning: {clean(trouble)}\n")
    requests, approved = records(data, "requests"), records(data, "approved")
    if requests:
        asked_rows = [("code", "holds for", "id", "name"), *map(_request, requests)]
        blocks.append("asked within the hour\n" + indent(table(asked_rows, 2)) + _NAMES)
    if approved:
        rows = [("id", "since", "", "name"), *map(_known, approved)]
        blocks.append("let in by pairing\n" + indent(table(rows, 2)))
    return "\n".join(blocks if requests or approved else [*blocks, _NOBODY])


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
