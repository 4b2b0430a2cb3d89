"""`nanobot service`: let systemd run nanobot."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from nanobot.cli.command import add, add_group

if TYPE_CHECKING:
    from nanobot.cli.command import Commands, Parser

_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")


def add_service(commands: Commands) -> None:
    """`nanobot service …`."""
    what = add_group(
        commands,
        "service",
        "let systemd run nanobot",
        "Let systemd run nanobot: it starts with the machine and is watched.",
    )
    install = _add(what, "install", "install or renew the service and start it")
    install.option(
        "--user",
        "NAME",
        "with --system: who it runs as (default: nanobot, who is made if need be)",
        default="",
    )
    install.flag("--no-start", "write and enable it, but do not start it now")
    install.flag("--dry-run", "print the unit file and change nothing")
    _add(what, "uninstall", "stop the service and take it away")
    _add(what, "status", "whether it runs, and how well").json()
    logs = _add(what, "logs", "what systemd and nanobot say about it")
    logs.count(50, "lines")
    logs.flag("--follow", "go on with new lines until Ctrl-C", "-f")


def _add(commands: Commands, name: str, summary: str) -> Parser:
    parser = add(commands, name, summary, _run)
    parser.flag("--system", "a service of the machine instead of yours")
    help_text = "another one beside the first: its unit is nanobot-NAME"
    return parser.option("--name", "NAME", help_text, type=_name, default="")


def _name(text: str) -> str:
    if text and not _NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not made of letters, digits, - and _ only")
    return text


def _run(options: argparse.Namespace) -> int:
    from nanobot.cli.service import systemd

    commands = {
        "install": systemd.install,
        "uninstall": systemd.uninstall,
        "status": systemd.status,
        "logs": systemd.logs,
    }
    return commands[options.what](options)
