"""The grammar of `nanobot skills`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nanobot.cli.grammar import add, add_json, choices, home_of, words

if TYPE_CHECKING:
    from nanobot.cli.grammar import Commands


def add_skills(commands: Commands) -> None:
    """`nanobot skills …`."""
    skills = commands.add_parser(
        "skills",
        help="what the model has instructions for",
        description="Folders with a SKILL.md that tell the model how to do something. A skill in "
        "the workspace is used once you have enabled it, and for as long as none of its files "
        "changes.",
    )
    what = choices(skills)
    add_json(add(what, "list", "all skills and how they stand", _list))
    show = _named(add(what, "show", "what a skill contains", _show))
    show.add_argument("file", nargs="?", default="", metavar="FILE", help="one of its files")
    add_json(show)
    _asking(_named(add(what, "enable", "show a skill, and let the model use it", _enable)))
    add_json(_named(add(what, "disable", "keep a skill from the model", _disable)))
    install = add(what, "install", "copy a skill into the workspace and enable it", _install)
    install.add_argument(
        "path", type=words, metavar="PATH", help="a folder in the Agent Skills format"
    )
    install.add_argument(
        "--replace", action="store_true", help="put it in the place of one of the same name"
    )
    _asking(install)


def _named(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("name", type=words, metavar="NAME", help="as `skills list` shows it")
    return parser


def _asking(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--everyone", action="store_true", help="also for people other than the owner"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")
    add_json(parser)


def _list(options: argparse.Namespace) -> int:
    from nanobot.cli.skills import show_all

    return show_all(home_of(options), as_json=options.json)


def _show(options: argparse.Namespace) -> int:
    from nanobot.cli.skills import show

    return show(home_of(options), options.name, options.file, as_json=options.json)


def _enable(options: argparse.Namespace) -> int:
    from nanobot.cli.skills import enable

    return enable(
        home_of(options), options.name, everyone=options.everyone, sure=options.yes,
        as_json=options.json,
    )  # fmt: skip


def _disable(options: argparse.Namespace) -> int:
    from nanobot.cli.skills import disable

    return disable(home_of(options), options.name, as_json=options.json)


def _install(options: argparse.Namespace) -> int:
    from nanobot.cli.skills import install

    return install(
        home_of(options), options.path, everyone=options.everyone, replace=options.replace,
        sure=options.yes, as_json=options.json,
    )  # fmt: skip
