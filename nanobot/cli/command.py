"""The building blocks of commands: their grammar, an operation to run, and a result to print.

Every command line and the help load this. So imports that only some commands need are made when
those run."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

from nanobot.errors import NanobotError

if TYPE_CHECKING:
    from datetime import tzinfo
    from typing import TextIO

    from nanobot.cli.client import Data
    from nanobot.config.settings import Settings

_UTC = r'("\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?)\+00:00"'

_OURS = frozenset({"home", "given_home", "command", "what", "run", "json", "yes"})
"""Options that are not arguments of the operation."""


class WrongUsage(NanobotError):
    """The command line is not valid. Exit code 2, as argparse has it."""

    exit_code = 2


class Options(argparse.Namespace):
    """The parsed command line, and the ways in which its command asks and answers."""

    home: Path
    run: Callable[[Options], int]
    json = False
    yes = False

    @property
    def operands(self) -> dict[str, object]:
        """The given options as arguments of an operation."""
        given = vars(self).items()
        return {key: value for key, value in given if value not in (None, "") and key not in _OURS}

    def operate(self, operation: str, **arguments: object) -> Data:
        """Run one operation, in the running gateway or else here on the files. Raises
        `NanobotError`."""
        from nanobot.cli.gateway import operate

        return operate(self.home, operation, **arguments)

    def print_result(
        self, data: Mapping[str, object], shown: Callable[[Data], str] | None = None
    ) -> int:
        """Print a result: as JSON if requested, else as `shown` formats it. Without `shown`, print
        the field `text`, which JSON leaves out."""
        from nanobot.cli.client import Data

        answer = Data(data)

        def people() -> str:
            problem = answer.text("trouble")
            warning = f"warning: {problem}\n\n" if problem else ""
            return warning + (shown(answer) if shown else answer.text("text").rstrip() + "\n")

        machines = {key: value for key, value in data.items() if shown or key != "text"}
        return self.print_either(machines or data, people)

    def print_either(self, machines: object, people: Callable[[], str]) -> int:
        """Print a result: as JSON if requested, else the text for people."""
        return print_json(machines) if self.json else print_text(people())

    def expect_consent(self, hint: str = "Add --yes to skip the confirmation.") -> None:
        """Raise `WrongUsage` unless --yes was given or a person can be asked."""
        if not self.yes and (self.json or not sys.stdin.isatty()):
            raise WrongUsage("this requires confirmation", hint=hint)

    def ask_consent(self, shown: str, question: str) -> bool:
        """Return True if the person agrees, with --yes or after seeing `shown`. Raises `WrongUsage`
        if there is no person to ask."""
        self.expect_consent()
        if self.yes:
            return True
        print_text(shown)
        return confirm_change(question)


_WRONG_WORD = r"(?s)argument (.+?): invalid choice: '(.*?)' \(choose from (.*)\)"
"""The message of argparse."""


PROGRAM = "program"


class _Help(argparse.HelpFormatter):
    """Help in the width of the terminal."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_terminal_columns() - 2)  # as its default is


class Parser(argparse.ArgumentParser):
    """A parser that reports an error in one line and fits its help to the terminal."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**{"formatter_class": _Help, **given})

    def format_help(self) -> str:
        return fit_width(super().format_help())

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Leave all words after `--` to `program`, unparsed. Report unknown arguments as errors of
        this command, not of its parent."""
        takes_program = any(action.dest == PROGRAM for action in self._actions)
        given = list(sys.argv[1:] if args is None else args)
        at = given.index("--") if takes_program and "--" in given else len(given)
        options, extra = super().parse_known_args(given[:at], namespace)
        if at < len(given):
            setattr(options, PROGRAM, given[at + 1 :])
        if extra:
            self._refuse(extra)
        return options, extra

    def _refuse(self, extra: Sequence[str]) -> NoReturn:
        named = next((one for one in extra if one.startswith("-")), "")
        if not named:
            self.error(f"unexpected argument {extra[0]!r}")
        name, known = named.partition("=")[0], list(self._option_string_actions)
        if name == "--home":
            self.error("--home must come before the command: nanobot --home DIR …")
        self.error(f"unknown option {named}{_suggest(name, known)}")

    def group(self, description: str = "") -> Commands:
        """Make this command consist of commands. By itself it lists them and exits with 2."""

        def show(_: Options) -> int:
            self.print_help(sys.stderr)
            return 2

        self.set_defaults(run=show)
        self.description = description or self.description
        return Commands(self)

    def program(self, summary: str) -> Self:
        """Add a program with its arguments, after `--`."""
        return self.argument(PROGRAM, "COMMAND", summary, nargs="*", default=[])

    def error(self, message: str) -> NoReturn:
        """Raise `WrongUsage` with one line: the mistake, and a suggestion if there is one."""
        if wrong := re.fullmatch(_WRONG_WORD, message):
            known = re.findall("'(.*?)'", wrong[3])
            what = "command" if wrong[1] == "COMMAND" else wrong[1]
            message = f"unknown {what} {wrong[2]!r}{_suggest(wrong[2], known)}"
        if not message.endswith("?"):
            message = f"{message}. See `{self.prog} --help`."
        raise WrongUsage(f"{self.prog}: {message}")

    def argument(self, name: str, metavar: str, summary: str, **more: Any) -> Self:
        """Add a positional argument."""
        self.add_argument(name, metavar=metavar, help=summary, **more)
        return self

    def option(self, name: str, metavar: str, summary: str, **more: Any) -> Self:
        """Add an option with a value: a text (empty by default), or of a `type`."""
        more.setdefault("default", None if "type" in more else "")
        return self.argument(name, metavar, summary, **more)

    def flag(self, name: str, summary: str, short: str = "") -> Self:
        names = (short, name) if short else (name,)
        self.add_argument(*names, action="store_true", help=summary)
        return self

    def json(self) -> Self:
        """Add `--json`."""
        return self.flag("--json", "print JSON")

    def yes(self, summary: str = "skip the confirmation") -> Self:
        """Add `--yes`, for commands that call `ask_consent`."""
        return self.flag("--yes", summary)

    def count(self, default: int, what: str) -> Self:
        """Add `-n`, the number of items to show."""
        summary = f"number of {what} (default: %(default)s)"
        return self.option("-n", "N", summary, type=count, default=default)


def _suggest(wrong: str, known: Sequence[str]) -> str:
    """Return "did you mean …?" with the most similar known word, or an empty text."""
    from nanobot.validation import nearest

    near = nearest(wrong, known)
    return f". Did you mean {near}?" if near else ""


class Commands:
    """The commands of `parser`. `dest` is the name of the chosen one in the namespace."""

    def __init__(self, parser: Parser, dest: str = "what") -> None:
        self._parser = parser
        self._parsers = parser.add_subparsers(dest=dest, metavar="COMMAND", prog=parser.prog)

    def outline(self, name: str, summary: str) -> Parser:
        """Add a command without its grammar."""
        sentence = summary[0].upper() + summary[1:] + "."
        return self._parsers.add_parser(name, help=summary, description=sentence)

    def add(self, name: str, summary: str, run: Callable[[Options], int]) -> Parser:
        """Add a command. `run` takes its namespace and returns the exit code."""
        parser = self.outline(name, summary)
        parser.set_defaults(run=run)
        return parser

    def group(self, name: str, summary: str) -> Commands:
        """Add a command that consists of commands."""
        return self.outline(name, summary).group()

    def operation(
        self,
        name: str,
        summary: str,
        operation: str,
        shown: Callable[[Data], str] | None = None,
        *,
        default: bool = False,
    ) -> Parser:
        """Add a command that is one operation of the gateway, with the same arguments.
        `print_result` prints the answer. The `default` runs if no command is given."""

        def run(options: Options) -> int:
            return options.print_result(options.operate(operation, **options.operands), shown)

        if default:
            self._parser.json().set_defaults(run=run)
        return self.add(name, summary, run).json()


def count(text: str) -> int:
    """Parse a number from 1, as an argument's type."""
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def words(text: str) -> str:
    """Accept a text that is not blank, as an argument's type."""
    if not text.strip():
        raise argparse.ArgumentTypeError("must not be empty")
    return text


def day(text: str) -> str:
    """Parse a date such as 2026-11-21, as an argument's type."""
    from datetime import date

    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a date such as 2026-11-21") from None


def path_of(text: str) -> Path:
    """Return the absolute path of a typed one. Raises `NanobotError`."""
    from nanobot.text import expanduser

    return expanduser(text).absolute()


def home_of(options: argparse.Namespace) -> Path:
    from nanobot.config import home_folder

    return path_of(options.given_home) if options.given_home else home_folder()


def settings_of(home: Path) -> Settings:
    """Return the settings of a home. Raises `ConfigError`."""
    from nanobot.config.load import load_settings

    return load_settings(home)


def settings_or_defaults(home: Path) -> Settings:
    """Return the settings of a home, or the defaults if they are not valid, for commands that must
    work even then."""
    from nanobot.config.settings import Settings
    from nanobot.errors import ConfigError

    try:
        return settings_of(home)
    except ConfigError:
        return Settings(home=home)


def find_shared_folder(home: Path) -> Path:
    """Return the folder with people's text: the shared folder of a team, or the home."""
    return settings_or_defaults(home).data_folder


def zone_of(home: Path) -> tzinfo | None:
    """Return the time zone for output: `agent.timezone`, or None for the system's."""
    from zoneinfo import ZoneInfo

    name = settings_or_defaults(home).agent.timezone
    return ZoneInfo(name) if name else None


def log_errors_only() -> None:
    """Log only errors to standard error: all other problems are part of the result."""
    from nanobot.logs import log_to_console
    from nanobot.security.redaction import Redactor

    log_to_console("error", Redactor())


def write_stdout(output: str) -> int:
    """Print a result unchanged, and return the exit code 0."""
    sys.stdout.write(output)
    return 0


def print_text(text: str, to: TextIO | None = None) -> int:
    """Print a text for people, without control characters and in the terminal's width."""
    from nanobot.text import clean

    stream = to or sys.stdout
    stream.write(fit_width(clean(text), stream))
    stream.flush()
    return 0


def print_json(data: object) -> int:
    """Print indented JSON, in ASCII, so that it cannot control a terminal. All UTC times end in
    `Z`."""
    import json

    return write_stdout(re.sub(_UTC, r'\1Z"', json.dumps(data, indent=2)) + "\n")


def agrees(question: str) -> bool:
    """Ask the person at the terminal. Any answer but yes is a no."""
    from nanobot.text import clean

    sys.stdout.write(f"{clean(question)} [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def confirm_change(question: str) -> bool:
    """Ask as `agrees` does, and confirm a no to the person."""
    is_yes = agrees(question)
    if not is_yes:
        write_stdout("Nothing was changed.\n")
    return is_yes


_NARROWEST_CELL = 24


def table(rows: Iterable[Sequence[str]], *header: str, margin: int = 0) -> str:
    """Return the rows with aligned columns, empty without rows. On a terminal the last column wraps
    within itself, if there is room."""
    from nanobot_cli.text import columns, wrap_text

    rows = [tuple(row) for row in rows]
    if header and rows:
        rows.insert(0, header)
    most = max(map(len, rows), default=1) - 1
    widths = [max(columns(row[at]) for row in rows if len(row) > at + 1) for at in range(most)]
    room, lines = _columns(sys.stdout), list[str]()
    for row in rows:
        line = " " * margin
        for cell, width in zip(row[:-1], widths, strict=False):
            line += f"{cell}{' ' * (width - columns(cell))}  "
        last, begins = row[-1] if row else "", columns(line)
        if room and room - begins >= _NARROWEST_CELL:
            last = wrap_text(last, room - begins).replace("\n", "\n" + " " * begins)
        lines.append(f"{line}{last}".rstrip())
    return "".join(f"{line}\n" for line in lines)


def fit_width(shown: str, to: TextIO | None = None) -> str:
    """Wrap text to the width of a terminal (`to`, by default standard output). For programs and
    files, return it unchanged, because they need whole lines."""
    width = _columns(to or sys.stdout)
    if not width:
        return shown
    from nanobot_cli.text import wrap_text

    return wrap_text(shown, width)


def _columns(to: TextIO) -> int:
    """Return the width of a terminal, 0 for any other stream."""
    return _terminal_columns() if to.isatty() else 0


def _terminal_columns() -> int:
    """Return the width of the terminal, or 80, as `shutil` does, whose import takes 2 ms."""
    with contextlib.suppress(ValueError):
        if (chosen := int(os.environ.get("COLUMNS", "0"))) > 0:
            return chosen
    with contextlib.suppress(OSError):  # no terminal
        return os.get_terminal_size().columns or 80
    return 80


def size(count: int) -> str:
    """Format bytes as `12.3 kB` or `1,234.5 MB`."""
    return f"{count / 1_000:.1f} kB" if count < 1_000_000 else f"{count / 1_000_000:,.1f} MB"


def indent(block: str) -> str:
    """Indent a block by two columns."""
    return "".join(f"  {line}".rstrip() + "\n" for line in block.splitlines())
