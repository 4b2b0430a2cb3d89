"""The grammar of the command line. What a command does is imported when it is run."""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING, NoReturn

from nanobot import __version__
from nanobot.cli.audit_grammar import add_audit, add_doctor
from nanobot.cli.backup_grammar import add_backup
from nanobot.cli.channels_grammar import add_channels
from nanobot.cli.cron_grammar import add_cron
from nanobot.cli.grammar import add, add_json, choices, count, home_of
from nanobot.cli.import_grammar import add_import
from nanobot.cli.logs_grammar import add_logs
from nanobot.cli.mcp_grammar import add_mcp
from nanobot.cli.memory_grammar import add_dream, add_memory
from nanobot.cli.onboard_grammar import add_onboard
from nanobot.cli.pair_grammar import add_pair
from nanobot.cli.service_grammar import add_service
from nanobot.cli.skills_grammar import add_skills
from nanobot_cli.wire import DEFAULT_SESSION

if TYPE_CHECKING:
    from nanobot.cli.grammar import Commands

SHELLS = ("bash", "zsh", "tcsh")

_DESCRIPTION = "A personal chat agent that never loses a message and remembers in plain text."

_EPILOG = """\
`nanobot agent` opens a chat. Exit codes: 0 done, 1 failed, 2 wrong usage, 69 the gateway went
away, 75 another nanobot owns the home, 78 the configuration is wrong, 130 interrupted."""


_WRONG_WORD = re.compile(
    r"argument [A-Z]+: invalid choice: '(.*?)' \(choose from (.*)\)", re.DOTALL
)


class _Parser(argparse.ArgumentParser):
    """Suggests the command that was probably meant, as argparse does from Python 3.14 on; what it
    prints fits the terminal."""

    def format_help(self) -> str:
        from nanobot.cli.show import fitted

        return fitted(super().format_help())

    def error(self, message: str) -> NoReturn:
        import difflib

        from nanobot.cli.show import fitted

        wrong = _WRONG_WORD.fullmatch(message)
        if wrong is not None:
            near = difflib.get_close_matches(wrong[1], re.findall("'(.*?)'", wrong[2]), n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"`{self.prog} --help` lists them."
            message = f"there is no command {wrong[1]!r}. {hint}"
        self.print_usage(sys.stderr)
        self.exit(2, fitted(f"{self.prog}: error: {message}\n", sys.stderr))


def build_parser() -> argparse.ArgumentParser:
    """The whole grammar; each command's namespace has `run`, which takes the namespace."""
    parser: argparse.ArgumentParser = _Parser(
        prog="nanobot",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument("-V", "--version", action="version", version=f"nanobot {__version__}")
    parser.add_argument(
        "--home", metavar="DIR", help="where nanobot lives (default: $NANOBOT_HOME or ~/.nanobot)"
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    add_onboard(commands)
    _add_agent(commands)
    add(commands, "gateway", "run nanobot with all its channels", _gateway)
    _add_status(commands)
    add_logs(commands)
    add_service(commands)
    add_channels(commands)
    add_pair(commands)
    add_memory(commands)
    add_dream(commands)
    add_cron(commands)
    add_skills(commands)
    _add_sessions(commands)
    _add_turn(commands)
    _add_queue(commands)
    add_mcp(commands)
    _add_config(commands)
    add_audit(commands)
    add_doctor(commands)
    add_backup(commands)
    add_import(commands)
    completion = add(commands, "completion", "print a script that completes commands", _complete)
    completion.add_argument("shell", choices=SHELLS)
    return parser


def _add_agent(commands: Commands) -> None:
    agent = add(commands, "agent", "chat, or say one thing with -m", _agent)
    agent.add_argument(
        "-m", "--message", metavar="TEXT", help="say this, print the reply and leave; - reads stdin"
    )
    agent.add_argument(
        "-s",
        "--session",
        metavar="KEY",
        default=DEFAULT_SESSION,
        help="the conversation (default: %(default)s)",
    )
    add_json(agent)


def _add_status(commands: Commands) -> None:
    status = add(commands, "status", "what runs, how well, and what waits", _status)
    status.add_argument(
        "--check", action="store_true", help="a line, and exit code 1 unless a gateway works"
    )
    add_json(status)


def _add_sessions(commands: Commands) -> None:
    sessions = commands.add_parser("sessions", help="look into conversations")
    what = choices(sessions)
    add_json(add(what, "list", "all conversations, latest first", _sessions_list))
    show = add(what, "show", "the latest messages of one", _sessions_show)
    show.add_argument("key", metavar="KEY", help="as `sessions list` shows it")
    show.add_argument(
        "-n", type=count, default=20, metavar="N", help="how many messages (default: %(default)s)"
    )
    add_json(show)


def _add_turn(commands: Commands) -> None:
    turn = commands.add_parser("turn", help="look into one turn")
    what = choices(turn)
    show = add(what, "show", "prompt, memory, tools, tokens and time of a turn", _turn_show)
    show.add_argument("id", metavar="ID", help="as `nanobot agent -m … --json` shows it")
    add_json(show)


def _add_queue(commands: Commands) -> None:
    queue = commands.add_parser("queue", help="look into and mend what waits or failed")
    what = choices(queue)
    add_json(add(what, "list", "messages that wait or failed", _queue_list))
    for name, summary in (("retry", "try one again"), ("drop", "give one up")):
        change = add(what, name, summary, _queue_change)
        change.add_argument("id", metavar="ID", help="as `queue list` shows it: in-12, out-7")
        add_json(change)


def _add_config(commands: Commands) -> None:
    config = commands.add_parser("config", help="check the configuration")
    what = choices(config)
    add(what, "check", "say whether config.yaml can be used", _config_check)
    add(what, "schema", "print the JSON Schema of config.yaml", _config_schema)


def _agent(options: argparse.Namespace) -> int:
    from nanobot.cli.agent import AgentOptions, run_agent

    chosen = AgentOptions(home_of(options), options.message, options.session, options.json)
    return run_agent(chosen)


def _gateway(options: argparse.Namespace) -> int:
    from nanobot.cli.hosted import run_gateway

    return run_gateway(home_of(options))


def _status(options: argparse.Namespace) -> int:
    from nanobot.cli.status import status

    return status(home_of(options), as_json=options.json, check=options.check)


def _sessions_list(options: argparse.Namespace) -> int:
    from nanobot.cli.sessions import list_sessions

    return list_sessions(home_of(options), as_json=options.json)


def _sessions_show(options: argparse.Namespace) -> int:
    from nanobot.cli.sessions import show_session

    return show_session(home_of(options), options.key, count=options.n, as_json=options.json)


def _turn_show(options: argparse.Namespace) -> int:
    from nanobot.cli.admin import turn_show

    return turn_show(home_of(options), options.id, as_json=options.json)


def _queue_list(options: argparse.Namespace) -> int:
    from nanobot.cli.admin import queue_list

    return queue_list(home_of(options), as_json=options.json)


def _queue_change(options: argparse.Namespace) -> int:
    from nanobot.cli.admin import queue_change

    return queue_change(home_of(options), options.what, options.id, as_json=options.json)


def _config_check(options: argparse.Namespace) -> int:
    from nanobot.cli.admin import config_check

    return config_check(home_of(options))


def _config_schema(options: argparse.Namespace) -> int:
    from nanobot.cli.admin import config_schema

    return config_schema()


def _complete(options: argparse.Namespace) -> int:
    from nanobot.cli.admin import completion

    return completion(build_parser(), options.shell)
