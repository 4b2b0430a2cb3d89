"""`nanobot service`: let systemd run nanobot."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from nanobot.cli.command import add, add_group

if TYPE_CHECKING:
    from nanobot.cli.command import Commands, Parser
    from nanobot.cli.service.unit import Place

_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")


def add_service(commands: Commands) -> None:
    """`nanobot service …`."""
    what = add_group(
        commands,
        "service",
        "let systemd run nanobot",
        "Let systemd run nanobot: it starts with the machine and is watched.",
    )
    install = _add_place(
        add(what, "install", "install or renew the service and start it", _install)
    )
    install.option(
        "--user",
        "NAME",
        "with --system: who it runs as (default: nanobot, who is made if need be)",
        default="",
    )
    install.flag("--no-start", "write and enable it, but do not start it now")
    install.flag("--dry-run", "print the unit file and change nothing")
    _add_place(add(what, "uninstall", "stop the service and take it away", _uninstall))
    status = _add_place(add(what, "status", "whether it runs, and how well", _status))
    status.json()
    logs = _add_place(add(what, "logs", "what systemd and nanobot say about it", _logs))
    logs.count(50, "lines")
    logs.flag("--follow", "go on with new lines until Ctrl-C", "-f")


def _add_place(parser: Parser) -> Parser:
    parser.flag("--system", "a service of the machine instead of yours")
    parser.option(
        "--name", "NAME", "another one beside the first: its unit is nanobot-NAME", type=_name
    )
    return parser


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not made of letters, digits, - and _ only")
    return text


def _install(options: argparse.Namespace) -> int:
    from nanobot.cli.service.systemd import install
    from nanobot.cli.service.unit import Place

    place = Place.of(options.name or "", system=options.system)
    start, dry_run = not options.no_start, options.dry_run
    return install(place, options.given_home or "", options.user, start=start, dry_run=dry_run)


def _uninstall(options: argparse.Namespace) -> int:
    from nanobot.cli.service.systemd import uninstall

    return uninstall(_place(options))


def _status(options: argparse.Namespace) -> int:
    from nanobot.cli.service.systemd import status

    return status(options, _place(options))


def _logs(options: argparse.Namespace) -> int:
    from nanobot.cli.service.systemd import logs

    return logs(_place(options), count=options.n, follow=options.follow)


def _place(options: argparse.Namespace) -> Place:
    from nanobot.cli.service.unit import Place

    return Place.found(options.name or "", system=options.system)
