"""The grammar of the command line. The code of a command is imported when it runs."""

from __future__ import annotations

from importlib import import_module

from nanobot import __version__
from nanobot.cli.command import Commands, Options, Parser, settings_of, write_stdout
from nanobot.cli.gateway import expect_free, when_free

SHELLS = ("bash", "zsh", "tcsh")

_COMMANDS = {
    "onboard": "onboard:add_onboard",
    "agent": "agent:add_agent",
    "web": "web:add_web",
    "gateway": "parser:add_gateway",
    "status": "status:add_status",
    "state": "status:add_state",
    "team": "team:add_team",
    "logs": "logs:add_logs",
    "service": "service:add_service",
    "channels": "channels:add_channels",
    "pair": "channels:add_pair",
    "api": "api:add_api",
    "memory": "memory:add_memory",
    "dream": "memory:add_dream",
    "approvals": "operations:add_approvals",
    "cron": "operations:add_cron",
    "skills": "extensions:add_skills",
    "sessions": "sessions:add_sessions",
    "turn": "sessions:add_turn",
    "queue": "operations:add_queue",
    "mcp": "extensions:add_mcp",
    "config": "config:add_config",
    "audit": "logs:add_audit",
    "doctor": "status:add_doctor",
    "backup": "backup:add_backup",
    "restore": "backup:add_backup",
    "import": "importing:add_import",
    "completion": "parser:add_completion",
}
"""The module below `nanobot.cli` and the function in it that adds a command's grammar, in the order
of the help."""

_DESCRIPTION = (
    "A personal chat agent that never loses a message and keeps its memory in plain text."
)

_EPILOG = """\
Open a chat with `nanobot agent`. Exit codes: 0 success, 1 failure, 2 usage error, 69 connection to
the gateway lost, 75 another nanobot is using the home, 78 invalid configuration, 130
interrupted."""


def build_parser(command: str = "") -> Parser:
    """Return the grammar of `command`, or of all commands. The whole grammar takes longer to build
    than Python takes to start. Each namespace has `run`, which is called with the namespace."""
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
    wanted = _COMMANDS.get(command)
    for place in [wanted] if wanted else dict.fromkeys(_COMMANDS.values()):
        module, _, function = place.partition(":")
        getattr(import_module(f"nanobot.cli.{module}"), function)(commands)
    return parser


def run_gateway(options: Options) -> int:
    when_free(lambda: expect_free(options.home, "starting"))
    settings = settings_of(options.home)  # report errors before loading more
    from nanobot.cli.local_gateway import build, serve

    return serve(build(settings, hosted=False))


def add_gateway(commands: Commands) -> None:
    commands.add("gateway", "run nanobot with all enabled channels", run_gateway)


def add_completion(commands: Commands) -> None:
    completion = commands.add("completion", "print a shell completion script", print_completion)
    completion.add_argument("shell", choices=SHELLS, help="your shell")


def print_completion(options: Options) -> int:
    import shtab

    return write_stdout(str(shtab.complete(build_parser(), options.shell)) + "\n")
