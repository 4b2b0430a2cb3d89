"""Keeps docs/cli.md true: the page is made from the grammar of the command line.

python -m nanobot.cli.reference            say whether it is (exit code 1 when it is not)
python -m nanobot.cli.reference --write    write it anew

Invariants: the page depends on the grammar alone, neither on the width of a terminal nor on
anybody's home.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from nanobot.cli.parser import build_parser
from nanobot.config.schema import kept_current

PAGE = Path("docs/cli.md")
GROUPS: Mapping[str, Sequence[str]] = {
    "Setting up": ("onboard", "config", "doctor", "import", "completion"),
    "Talking": ("agent",),
    "Running": ("gateway", "status", "logs", "service"),
    "Channels and people": ("channels", "pair"),
    "Memory and skills": ("memory", "dream", "skills"),
    "Jobs and tools": ("cron", "mcp", "audit"),
    "Inspecting and fixing": ("sessions", "turn", "queue", "state"),
    "Backups": ("backup", "restore"),
}
"""Every command is in one of these; one that is not installed is left out."""

_HEAD = """\
# The command line

<!-- Written by `python -m nanobot.cli.reference --write` from the grammar; do not edit it here. -->

`nanobot COMMAND --help` says the same in a terminal, and `nanobot completion bash` (or `zsh`,
`tcsh`) prints a script that completes commands. Where a gateway runs, commands go through it;
where none does, they work on the files. `--json` prints the result as JSON, for programs.
"""
_WIDE = 10_000
_STAYS = "\N{NO-BREAK SPACE}"
_EVERYWHERE = "print JSON"
"""What `Parser.json` says: told once, at the top."""


def rendered(parser: argparse.ArgumentParser) -> str:
    """The page for a grammar. Raises `ValueError` for a command that is in no group."""
    commands = _commands(parser)
    grouped = [name for names in GROUPS.values() for name in names]
    if missing := sorted(commands.keys() - set(grouped)):
        raise ValueError(f"in no group of nanobot.cli.reference: {', '.join(missing)}")
    _, _, codes = " ".join((parser.epilog or "").split()).partition("Exit codes: ")
    blocks = [_HEAD, _options(parser), f"Exit codes: {codes}\n" if codes else ""]
    for title, names in GROUPS.items():
        if there := [commands[name] for name in names if name in commands]:
            blocks += [f"## {title}\n", *(block for one in there for block in _described(one))]
    return "\n".join(block for block in blocks if block)


def _commands(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    """The commands of a parser, by name."""
    groups = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    return {name: command for group in groups for name, command in group.choices.items()}


def _described(parser: argparse.ArgumentParser, level: str = "###") -> Iterator[str]:
    """A command and those below it."""
    inner = _commands(parser).values()
    yield f"{level} `{parser.prog}{' …' if inner else ''}`\n"
    yield f"{parser.description}\n"
    if parser.get_default("run") is not None:
        yield f"```\n{_usage(parser)}\n```\n"
        yield _options(parser)
    for command in inner:
        yield from _described(command, "####")


def _usage(parser: argparse.ArgumentParser) -> str:
    """How it is called; what belongs together stays on one line."""
    parser.formatter_class = partial(argparse.HelpFormatter, width=_WIDE)
    usage = " ".join(parser.format_usage().removeprefix("usage: ").replace("[-h]", "").split())
    kept = re.sub(r"\[[^]]*\]", lambda found: found[0].replace(" ", _STAYS), usage)
    lines = textwrap.wrap(kept, 92, subsequent_indent="    ", break_on_hyphens=False)
    return "\n".join(lines).replace(_STAYS, " ")


def _options(parser: argparse.ArgumentParser) -> str:
    """A table of what a command takes; empty for nothing but --help."""
    rows = [row for action in parser._actions if (row := _row(action, parser.prog))]
    return "\n".join(["| | |", "|---|---|", *rows, ""]) if rows else ""


def _row(action: argparse.Action, prog: str) -> str:
    left_out = (argparse._HelpAction, argparse._SubParsersAction)
    if isinstance(action, left_out) or action.help in (argparse.SUPPRESS, _EVERYWHERE):
        return ""
    takes = _value(action)
    if action.option_strings:
        value = f" {takes}" if takes else ""
        names = ", ".join(f"`{name}{value}`" for name in action.option_strings)
    else:
        names = f"`{takes}`"
    text = (action.help or "") % {**vars(action), "prog": prog}
    return f"| {names} | {text[:1].upper()}{text[1:]} |"


def _value(action: argparse.Action) -> str:
    """What stands for the value of an option or an argument; empty for a switch."""
    if action.nargs == 0:
        return ""
    if action.choices is not None and action.metavar is None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    name = action.metavar or action.dest.upper()
    return name if isinstance(name, str) else " ".join(name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the page or, with --write, write it; the exit code."""
    return kept_current(PAGE, lambda _: rendered(build_parser()), "the reference", arguments)


if __name__ == "__main__":
    raise SystemExit(main())
