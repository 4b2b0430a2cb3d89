"""The grammar of the command line. What a command does is imported when it is run."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from nanobot import __version__
from nanobot.cli.agent import add_agent
from nanobot.cli.backup import add_backup
from nanobot.cli.channels import add_channels, add_pair
from nanobot.cli.command import Parser, add, add_group, print_json, print_text, write_stdout
from nanobot.cli.cron import add_cron
from nanobot.cli.doctor import add_doctor
from nanobot.cli.extensions import add_mcp, add_skills
from nanobot.cli.gateway import build, expect_free
from nanobot.cli.importing import add_import
from nanobot.cli.logs import add_audit, add_logs
from nanobot.cli.memory import add_dream, add_memory
from nanobot.cli.onboard import add_onboard
from nanobot.cli.service import add_service
from nanobot.cli.sessions import add_queue, add_sessions, add_turn
from nanobot.cli.status import add_state, add_status

if TYPE_CHECKING:
    from nanobot.cli.command import Commands

SHELLS = ("bash", "zsh", "tcsh")

_DESCRIPTION = "A personal chat agent that never loses a message and remembers in plain text."

_EPILOG = """\
`nanobot agent` opens a chat. Exit codes: 0 done, 1 failed, 2 wrong usage, 69 the gateway went
away, 75 another nanobot owns the home, 78 the configuration is wrong, 130 interrupted."""


def build_parser() -> Parser:
    """The whole grammar; each command's namespace has `run`, which takes the namespace."""
    parser = Parser(prog="nanobot", description=_DESCRIPTION, epilog=_EPILOG)
    parser.add_argument("-V", "--version", action="version", version=f"nanobot {__version__}")
    parser.add_argument(
        "--home",
        dest="given_home",
        metavar="DIR",
        help="where nanobot lives (default: $NANOBOT_HOME or ~/.nanobot)",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for add_command in _COMMANDS:
        add_command(commands)
    return parser


def _run_gateway(options: argparse.Namespace) -> int:
    """Run until a signal; returns the exit code.

    Where a restart was asked for, this process becomes a new one with the same command line.
    """
    from nanobot.config.load import load_settings

    expect_free(options.home)
    settings = load_settings(options.home)  # what is wrong is said before more is loaded
    import asyncio

    gateway = build(settings, hosted=False)
    code = asyncio.run(gateway.run())
    if gateway.restart_requested:
        os.execv(sys.executable, sys.orig_argv)  # noqa: S606 - the very command line we are
    return code


def _add_gateway(commands: Commands) -> None:
    add(commands, "gateway", "run nanobot with all its channels", _run_gateway)


def _add_config(commands: Commands) -> None:
    what = add_group(commands, "config", "check the configuration")
    add(what, "check", "check whether config.yaml is valid", _config_check)
    add(what, "schema", "print the JSON Schema of config.yaml", _config_schema)


def _add_completion(commands: Commands) -> None:
    completion = add(commands, "completion", "print a shell completion script", _complete)
    completion.add_argument("shell", choices=SHELLS)


def _config_check(options: argparse.Namespace) -> int:
    """Raises `ConfigError` for what is wrong, prints what is doubtful."""
    from nanobot.config.load import load_settings

    path = options.home / "config.yaml"
    for warning in load_settings(options.home).warnings:
        print_text(f"warning: {warning}\n")
    where = f"{path} can be used" if path.exists() else f"there is no {path}; the defaults apply"
    return print_text(f"ok: {where}.\n")


def _config_schema(_: argparse.Namespace) -> int:
    from nanobot.config.schema import config_schema

    return print_json(config_schema())


def _complete(options: argparse.Namespace) -> int:
    import shtab

    return write_stdout(str(shtab.complete(build_parser(), options.shell)) + "\n")


_COMMANDS = (
    *(add_onboard, add_agent, _add_gateway, add_status, add_state, add_logs, add_service),
    *(add_channels, add_pair, add_memory, add_dream, add_cron, add_skills, add_sessions),
    *(add_turn, add_queue, add_mcp, _add_config, add_audit, add_doctor, add_backup, add_import),
    _add_completion,
)
"""What adds the grammar of each command, in the order of the help."""
