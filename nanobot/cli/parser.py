"""The grammar of the command line. The code of a command is imported when it runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module

from nanobot import __version__
from nanobot.cli.command import Commands, Options, Parser, settings_of, write_stdout

SHELLS = ("bash", "zsh", "tcsh")

_COMMANDS = {
    "onboard": ("onboard", "set up nanobot or change its settings"),
    "agent": ("agent", "chat, or send one message with -m"),
    "web": ("web", "open nanobot in the browser"),
    "gateway": ("parser", "run nanobot with all enabled channels"),
    "status": ("status", "show health, channels, and pending work"),
    "state": ("status", "print nanobot's internal state"),
    "team": ("team", "run several workers on several machines (docs/team.md)"),
    "logs": ("logs", "show nanobot's log"),
    "service": ("service", "run nanobot as a systemd service"),
    "channels": ("channels", "sign in to channels and show their status"),
    "pair": ("channels", "give people and groups access"),
    "api": ("api", "give other programs access to nanobot"),
    "memory": (
        "memory", "search and share memory, show where facts come from, and undo changes"
    ),
    "dream": ("memory", "learn from recent conversations now"),
    "approvals": ("operations", "list pending questions, and list or revoke standing approvals"),
    "cron": ("operations", "schedule reminders and tasks"),
    "skills": ("extensions", "manage skills"),
    "sessions": ("sessions", "list, search, and change conversations"),
    "turn": ("sessions", "show the details of a turn"),
    "queue": ("operations", "show and fix pending and failed messages"),
    "mcp": ("extensions", "manage MCP servers and their tools"),
    "config": ("config", "show, check, and change the configuration"),
    "audit": ("logs", "show allowed and rejected tool calls"),
    "doctor": ("status", "check everything and suggest fixes"),
    "backup": ("backup", "back up the whole home to one file"),
    "restore": ("backup", "restore a home from a backup"),
    "import": ("importing", "import a home of HKUDS/nanobot (nanobot-ai)"),
    "completion": ("parser", "print a shell completion script"),
}  # fmt: skip
"""For each command the module below `nanobot.cli` whose function `add_…` adds the grammar, and a
summary. In the order of the help."""

_DESCRIPTION = (
    "A personal chat agent that never loses a message and keeps its memory in plain text."
)

_EPILOG = """\
Open a chat with `nanobot agent`. Exit codes: 0 success, 1 failure, 2 usage error, 69 connection to
the gateway lost, 75 another nanobot is using the home, 78 invalid configuration, 130
interrupted."""


def build_parser(command: str | None = None) -> Parser:
    """Return the grammar of `command`, or of all commands if None. For any other word, return only
    the list of commands. The whole grammar takes longer to build than Python takes to start. Each
    namespace has `run`, which is called with the namespace."""
    parser = Parser(prog="nanobot", description=_DESCRIPTION, epilog=_EPILOG)
    version = f"nanobot {__version__}"
    parser.add_argument(
        "-V", "--version", action="version", version=version, help="show the version"
    )
    parser.add_argument(
        "--home",
        dest="given_home",
        metavar="DIR",
        help="nanobot's home folder (default: $NANOBOT_HOME or ~/.nanobot)",
    )
    commands = Commands(parser, "command")
    for name in [command] if command in _COMMANDS else _COMMANDS:
        module, summary = _COMMANDS[name]
        outline = commands.outline(name, summary)
        if command in (None, name):
            getattr(import_module(f"nanobot.cli.{module}"), f"add_{name}")(outline)
    return parser


def command_in(arguments: Sequence[str]) -> str | None:
    """Return the word in the place of the command, `--help` if there is none, or None after a rare
    option."""
    before = 2 if arguments[:1] == ["--home"] else 0
    word = next(iter(arguments[before:]), "--help")
    return None if word.startswith("-") and word not in ("-h", "--help") else word


def run_gateway(options: Options) -> int:
    # Its own output takes 3 ms to make, and `build` replaces it.
    os.environ["LOGURU_AUTOINIT"] = "0"
    import loguru  # noqa: F401

    del os.environ["LOGURU_AUTOINIT"]
    from nanobot.cli.gateway import expect_free, when_free

    when_free(lambda: expect_free(options.home, "starting"))
    settings = settings_of(options.home)  # report errors before loading more
    from nanobot.cli.local_gateway import build, serve

    return serve(build(settings, hosted=False))


def add_gateway(gateway: Parser) -> None:
    gateway.set_defaults(run=run_gateway)


def add_completion(completion: Parser) -> None:
    completion.set_defaults(run=print_completion)
    completion.add_argument("shell", choices=SHELLS, help="your shell")


def print_completion(options: Options) -> int:
    import shtab

    return write_stdout(str(shtab.complete(build_parser(), options.shell)) + "\n")
