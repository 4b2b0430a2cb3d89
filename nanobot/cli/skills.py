"""`nanobot skills list|show|enable|disable|install`.

The work is done by the running gateway, so that it holds at once, or on the files where none runs.
What is enabled is what was shown: the digest of it goes along. A skill is somebody else's text, so
what is printed is cleaned first.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from nanobot.cli.admin import asked, put, said_yes, to_json
from nanobot.cli.agent import WrongUse
from nanobot.cli.show import Data, field, fitted, indent, number, records, table, text
from nanobot.errors import NanobotError
from nanobot.tilde import expanded
from nanobot_cli.text import clean

_WIDTH = 100


def show_all(home: Path, *, as_json: bool) -> int:
    """`nanobot skills list`."""
    data = asked(home, "skills.list", {})
    return put(to_json(data) if as_json else fitted(_list_text(data)))


def show(home: Path, name: str, file: str, *, as_json: bool) -> int:
    """`nanobot skills show NAME [FILE]`."""
    if file:
        data = asked(home, "skills.file", {"name": name, "file": file})
        return put(to_json(data) if as_json else clean(text(data, "text")).rstrip("\n") + "\n")
    data = asked(home, "skills.show", {"name": name})
    return put(to_json(data) if as_json else fitted(_skill_text(data)))


def enable(home: Path, name: str, *, everyone: bool, sure: bool, as_json: bool) -> int:
    """`nanobot skills enable NAME`: shows what it contains, asks, and enables just that. Returns 1
    where the answer was no; raises `WrongUse` where there is nobody to ask."""
    data = asked(home, "skills.show", {"name": name})
    if not _agreed(data, f"Enable {field(data, 'name')}?", sure=sure, as_json=as_json):
        return 1
    given = {"name": name, "digest": text(data, "digest"), "everyone": everyone}
    return _told(asked(home, "skills.enable", given), as_json=as_json)


def disable(home: Path, name: str, *, as_json: bool) -> int:
    """`nanobot skills disable NAME`."""
    return _told(asked(home, "skills.disable", {"name": name}), as_json=as_json)


def install(
    home: Path, path: str, *, everyone: bool, replace: bool, sure: bool, as_json: bool
) -> int:
    """`nanobot skills install PATH`: shows what it contains, asks, copies and enables it. As
    `enable`."""
    if "://" in path:
        raise WrongUse(
            f"{path} is an address, and a skill is installed from a folder of yours",
            hint="Download it first (`git clone`, or unpack the archive), look at it, and name"
            " that folder.",
        )
    place = str(expanded(path).absolute())
    data = asked(home, "skills.package", {"path": place})
    if data.get("replaces") and not replace:
        raise NanobotError(
            f"there is a skill {field(data, 'name')} in the workspace already",
            hint="Add --replace to put this one in its place.",
        )
    replaces = " in the place of the one that is there" if data.get("replaces") else ""
    question = f"Install {field(data, 'name')}{replaces}?"
    if not _agreed(data, question, sure=sure, as_json=as_json):
        return 1
    given = {
        "path": place, "digest": text(data, "digest"), "replace": replace, "everyone": everyone,
    }  # fmt: skip
    return _told(asked(home, "skills.install", given), as_json=as_json)


def _agreed(data: Data, question: str, *, sure: bool, as_json: bool) -> bool:
    if sure:
        return True
    if as_json or not sys.stdin.isatty():
        raise WrongUse("this has to be confirmed", hint="Add --yes to do it without being asked.")
    put(fitted(_skill_text(data)))
    if said_yes(f"\n{question}"):
        return True
    put("Nothing was changed.\n")
    return False


def _told(data: dict[str, object], *, as_json: bool) -> int:
    if as_json:
        return put(to_json(data))
    name, status = field(data, "name"), field(data, "status")
    note = f" Note: {field(data, 'note')}." if field(data, "note") else ""
    return put(fitted(f"{name} is {status}.{note if status == 'enabled' else ''}\n"))


def _list_text(data: Data) -> str:
    trouble = text(data, "trouble")
    warning = f"warning: {clean(trouble)}\n\n" if trouble else ""
    rows = [("name", "from", "status", "what it is for"), *map(_row, records(data, "skills"))]
    return warning + table(rows)


def _row(skill: Data) -> tuple[str, ...]:
    status = field(skill, "status")
    if status == "enabled" and skill.get("available") is False:
        status = "lacking"
    told = field(skill, "note", _WIDTH) or field(skill, "description", _WIDTH)
    return field(skill, "name"), field(skill, "source"), status, told


def _skill_text(data: Data) -> str:
    rows = [
        (label, field(data, key, 2_000))
        for label, key in (
            ("name", "name"),
            ("from", "source"),
            ("status", "status"),
            ("for", "description"),
            ("license", "license"),
            ("made for", "compatibility"),
            ("problem", "problem"),
        )
        if field(data, key)
    ]
    lists = (("triggers", "triggers"), ("missing", "missing"), ("install", "install"))
    rows += [(label, found) for label, key in lists if (found := _listed(data, key))]
    if data.get("always") is True:
        rows.append(("always", "its text stands in every prompt"))
    blocks = [table(rows), f"files\n{indent(table(map(_file, records(data, 'files')), 2))}"]
    blocks += [_section(title, data, key) for title, key in _SECTIONS if data.get(key)]
    blocks.append(f"SKILL.md\n{indent(clean(text(data, 'text')))}")
    return "\n".join(blocks)


_SECTIONS = (("since you enabled it", "changes"), ("careful", "warnings"))


def _section(title: str, data: Data, key: str) -> str:
    value = data.get(key)
    lines = [clean(str(line)) for line in value] if isinstance(value, list) else []
    block = indent("\n".join(lines))
    return f"{title}\n{block}"


def _listed(data: Data, key: str) -> str:
    value = data.get(key)
    return clean(", ".join(map(str, value))) if isinstance(value, list) else ""


def _file(file: Mapping[str, object]) -> tuple[str, ...]:
    kind = field(file, "kind")
    return field(file, "path"), f"{number(file, 'size'):,} bytes", "" if kind == "text" else kind
