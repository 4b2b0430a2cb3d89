"""`nanobot skills`: what the model has instructions for.

What is enabled is what was shown: the digest of it goes along.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nanobot.cli.command import (
    Data,
    WrongUsage,
    add,
    add_group,
    add_operation,
    agreed,
    field,
    indent,
    number,
    path_of,
    print_result,
    records,
    table,
    text,
    words,
)
from nanobot.cli.gateway import operate
from nanobot.errors import NanobotError

if TYPE_CHECKING:
    from nanobot.cli.command import Commands, Parser

_WIDTH = 100
_ROWS = (
    ("name", "name"), ("from", "source"), ("status", "status"), ("for", "description"),
    ("license", "license"), ("made for", "compatibility"), ("problem", "problem"),
    ("triggers", "triggers"), ("missing", "missing"), ("install", "install"),
)  # fmt: skip
_SECTIONS = (("since you enabled it", "changes"), ("careful", "warnings"))


def add_skills(commands: Commands) -> None:
    """`nanobot skills …`."""
    what = add_group(
        commands,
        "skills",
        "what the model has instructions for",
        "Folders with a SKILL.md that tell the model how to do something. A skill in "
        "the workspace is used once you have enabled it, and for as long as none of its files "
        "changes.",
    )
    add_operation(what, "list", "all skills and how they stand", "skills.list", _list_text)
    show = _named(add(what, "show", "what a skill contains", _show))
    show.argument("file", "FILE", "one of its files", nargs="?", default="")
    show.json()
    _add_consent(_named(add(what, "enable", "show a skill, and let the model use it", _enable)))
    summary = "keep a skill from the model"
    _named(add_operation(what, "disable", summary, "skills.disable", _status_text))
    install = add(what, "install", "copy a skill into the workspace and enable it", _install)
    install.argument("path", "PATH", "a folder in the Agent Skills format", type=words)
    install.flag("--replace", "put it in the place of one of the same name")
    _add_consent(install)


def _named(parser: Parser) -> Parser:
    parser.argument("name", "NAME", "as `skills list` shows it", type=words)
    return parser


def _add_consent(parser: Parser) -> None:
    parser.flag("--everyone", "also for people other than the owner")
    parser.yes()
    parser.json()


def _show(options: argparse.Namespace) -> int:
    home, name, file = options.home, options.name, options.file
    if not file:
        return print_result(options, operate(home, "skills.show", name=name), _skill_text)
    data = operate(home, "skills.file", name=name, file=file)
    return print_result(options, data, lambda data: text(data, "text").rstrip("\n") + "\n")


def _enable(options: argparse.Namespace) -> int:
    """Shows what a skill contains, asks, and enables just that; 1 where the answer was no."""
    data = operate(options.home, "skills.show", name=options.name)
    question = f"\nEnable {field(data, 'name')}?"
    return _agree(options, "skills.enable", data, question, name=options.name)


def _agree(
    options: argparse.Namespace, operation: str, skill: Data, question: str, **given: object
) -> int:
    """Show a skill, and do what the question asks about with just what was shown."""
    if not agreed(options, _skill_text(skill), question):
        return 1
    given |= {"digest": text(skill, "digest"), "everyone": options.everyone}
    return print_result(options, operate(options.home, operation, **given), _status_text)


def _install(options: argparse.Namespace) -> int:
    """As `_enable`, with a copy of the folder."""
    if "://" in options.path:
        raise WrongUsage(
            f"{options.path} is an address, and a skill is installed from a folder of yours",
            hint="Download it first (`git clone`, or unpack the archive), look at it, and name"
            " that folder.",
        )
    place = str(path_of(options.path))
    data = operate(options.home, "skills.package", path=place)
    name = field(data, "name")
    if data.get("replaces") and not options.replace:
        raise NanobotError(
            f"there is a skill {name} in the workspace already",
            hint="Add --replace to put this one in its place.",
        )
    replaces = " in the place of the one that is there" if data.get("replaces") else ""
    question = f"\nInstall {name}{replaces}?"
    given = {"path": place, "replace": options.replace}
    return _agree(options, "skills.install", data, question, **given)


def _status_text(data: Data) -> str:
    status, note = field(data, "status"), field(data, "note")
    more = f" Note: {note}." if note and status == "enabled" else ""
    return f"{field(data, 'name')} is {status}.{more}\n"


def _list_text(data: Data) -> str:
    return table(map(_row, records(data, "skills")), "name", "from", "status", "what it is for")


def _row(skill: Data) -> tuple[str, ...]:
    status = field(skill, "status")
    if status == "enabled" and skill.get("available") is False:
        status = "lacking"
    told = field(skill, "note", _WIDTH) or field(skill, "description", _WIDTH)
    return field(skill, "name"), field(skill, "source"), status, told


def _skill_text(data: Data) -> str:
    rows = [(label, value) for label, key in _ROWS if (value := ", ".join(_listed(data, key)))]
    if data.get("always") is True:
        rows.append(("always", "its text stands in every prompt"))
    blocks = [table(rows), f"files\n{table(map(_file, records(data, 'files')), margin=2)}"]
    for title, key in _SECTIONS:
        if lines := _listed(data, key):
            block = indent("\n".join(lines))
            blocks.append(f"{title}\n{block}")
    blocks.append(f"SKILL.md\n{indent(text(data, 'text'))}")
    return "\n".join(blocks)


def _listed(data: Data, key: str) -> list[str]:
    """A field's values; a text is one of them."""
    value = data.get(key)
    if isinstance(value, list):
        return list(map(str, value))
    return [field(data, key, 2_000)] if value else []


def _file(file: Data) -> tuple[str, ...]:
    kind = field(file, "kind")
    return field(file, "path"), f"{number(file, 'size'):,} bytes", "" if kind == "text" else kind
