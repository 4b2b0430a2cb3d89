"""Check the pages that are generated from the code: docs/cli.md from the grammar of the command
line, and the table of docs/configuration.md from the settings.

    python -m scripts.pages            check them (exit code 1 if they are outdated)
    python -m scripts.pages --write    write them

Invariant: the pages depend only on the code, and not on the width of a terminal or a home."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from nanobot.cli.parser import build_parser
from nanobot.config.channels import (
    ChannelSettings,
    OwnerSettings,
    find_channels,
    options_model,
)
from nanobot.config.model import NamedModel
from nanobot.config.schema import Json, section_schema
from nanobot.config.settings import SECTIONS
from nanobot.origin import DISTRIBUTION
from nanobot.validation import Checked

ROOT = Path(__file__).parent.parent
GROUPS: Mapping[str, Sequence[str]] = {
    "Setting up": ("onboard", "config", "doctor", "import", "completion"),
    "Talking": ("agent", "web"),
    "Running": ("gateway", "status", "logs", "service", "team"),
    "Channels and people": ("channels", "pair", "api"),
    "Memory and skills": ("memory", "dream", "skills"),
    "Jobs and tools": ("cron", "mcp", "approvals", "audit"),
    "Inspecting and fixing": ("sessions", "turn", "queue", "state"),
    "Backups": ("backup", "restore"),
}
"""Groups of all commands. Commands that are not installed are left out."""

_HEAD = """\
# The command line

<!-- Written by `python -m scripts.pages --write` from the grammar; do not edit it here. -->

`nanobot COMMAND --help` shows the same text in a terminal. `nanobot completion bash` (or `zsh`,
`tcsh`) prints a script for shell completion. If a gateway is running, commands use it. Otherwise
they work on the files. Most commands accept `--json` for JSON output, with times in ISO 8601.
`--yes` skips a command's questions.
"""
_WIDE = 10_000
_EVERYWHERE = ("print JSON", "skip the confirmation")
"""Descriptions of options that the top of the page explains."""
_SHARED = 3
"""Options shared by this many commands of a group are described once."""


def command_page(parser: argparse.ArgumentParser) -> str:
    """Return docs/cli.md for a grammar. Raise `ValueError` for a command without a group."""
    commands = _commands(parser)
    grouped = [name for names in GROUPS.values() for name in names]
    if missing := sorted(commands.keys() - set(grouped)):
        raise ValueError(f"in no group of scripts.pages: {', '.join(missing)}")
    _, _, codes = " ".join((parser.epilog or "").split()).partition("Exit codes: ")
    blocks = [_HEAD, _join_rows(_options(parser)), f"Exit codes: {codes}\n" if codes else ""]
    for title, names in GROUPS.items():
        if there := [commands[name] for name in names if name in commands]:
            blocks += [f"## {title}\n", *(block for one in there for block in _describe(one))]
    return "\n".join(block for block in blocks if block)


def _commands(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    """Return the commands of a parser by name."""
    groups = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    return {name: command for group in groups for name, command in group.choices.items()}


def _describe(
    parser: argparse.ArgumentParser, level: str = "###", known: Collection[str] = ()
) -> Iterator[str]:
    """Yield a command and those below it. `known` are options that are described above."""
    inner = _commands(parser).values()
    yield f"{level} `{_usage(parser)}{' …' if inner else ''}`\n"
    yield f"{parser.description}\n"
    if parser.get_default("run") is not None:
        yield _join_rows(row for row in _options(parser) if row not in known)
    counts = Counter(row for command in inner for row in _options(command) if row[3] == "-")
    shared = [row for row, count in counts.items() if count >= _SHARED]
    if shared:
        yield "Options that several of these commands share:\n"
        yield _join_rows(shared)
    for command in inner:
        yield from _describe(command, "####", shared)


def _usage(parser: argparse.ArgumentParser) -> str:
    """Return the command with its arguments, without options."""
    hidden = argparse._SubParsersAction
    given = [one for one in parser._actions if not one.option_strings]
    formatter = argparse.HelpFormatter(parser.prog, width=_WIDE)
    formatter.add_usage(None, [one for one in given if not isinstance(one, hidden)], [], prefix="")
    return " ".join(formatter.format_help().split())


def _options(parser: argparse.ArgumentParser) -> list[str]:
    """Return a line for each argument and option, without --help."""
    return [row for action in parser._actions if (row := _row(action, parser.prog))]


def _join_rows(rows: Iterable[str]) -> str:
    return "\n".join([*found, ""]) if (found := list(rows)) else ""


def _row(action: argparse.Action, prog: str) -> str:
    left_out = (argparse._HelpAction, argparse._SubParsersAction)
    if isinstance(action, left_out) or action.help in (argparse.SUPPRESS, *_EVERYWHERE):
        return ""
    takes = _value(action)
    if action.option_strings:
        value = f" {takes}" if takes else ""
        names = ", ".join(f"`{name}{value}`" for name in action.option_strings)
    else:
        names = f"`{takes}`"
    text = (action.help or "") % {**vars(action), "prog": prog}
    return f"- {names}: {text}"


def _value(action: argparse.Action) -> str:
    """Return the placeholder for the value of an option or an argument, or an empty text for a
    switch."""
    if action.nargs == 0:
        return ""
    if action.choices is not None and action.metavar is None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    name = action.metavar or action.dest.upper()
    return name if isinstance(name, str) else " ".join(name)


def settings_table() -> str:
    """Return a Markdown list of every key with its default and meaning."""
    shipped = {
        name: options_model(point)
        for name, point in sorted(find_channels().items())
        if point and point.dist and point.dist.name == DISTRIBUTION
    }
    tops: dict[str, type[Checked]] = {
        **SECTIONS,
        "models.<name>": NamedModel,
        "owner": OwnerSettings,
        "channels.<name>": ChannelSettings,
        **{f"channels.{name}": model for name, model in shipped.items()},
    }
    schemas = {name: section_schema(model) for name, model in tops.items()}
    owner = schemas["owner"]["properties"].pop("owner")
    schemas["owner"]["properties"]["<channel>"] = {
        **owner["additionalProperties"],
        "description": owner["description"],
        "default": [],
    }
    return "".join(row for name, schema in schemas.items() for row in _rows(schema, name))


def _rows(section: Json, name: str) -> Iterator[str]:
    """Yield the lines of a section and of its subsections, also of those by name."""
    for key, value in section["properties"].items():
        path = f"{name}.{key}"
        if "properties" in value:
            yield from _rows(value, path)
            continue
        required = key in section.get("required", ())
        default = " (required)" if required else _default(value.get("default", ""))
        yield f"- `{path}`{default}: {value['description']}{_limits(value)}\n"
        if "properties" in (held := _by_name(value)):
            yield from _rows(held, f"{path}.<name>")


def _by_name(value: Json) -> Json:
    held = value.get("additionalProperties")
    return held if isinstance(held, dict) else {}


def _limits(value: Json) -> str:
    """Return the choices and the range that the description doesn't mention."""
    text = str(value["description"])
    if choices := [f"`{one}`" for one in value.get("enum", ()) if one and f"`{one}`" not in text]:
        return f" One of {', '.join(choices)}."
    least, most = value.get("minimum"), value.get("maximum")
    return f" {least:g} to {most:g}." if least is not None and most is not None else ""


def _default(value: object) -> str:
    if value == "":
        return ""
    if isinstance(value, float):
        return f" (`{value:g}`)"
    return f" (`{json.dumps(value) if not isinstance(value, str) else value}`)"


BEGIN = "<!-- settings: begin; written by `python -m scripts.pages --write` -->\n"
END = "<!-- settings: end -->\n"


def with_current_table(page: str) -> str:
    """Replace the text between the markers of `page`. Raise ValueError without markers."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError("the page lacks the two markers of the table")
    return f"{before}{BEGIN}\n{settings_table()}\n{END}{after}"


PAGES: Mapping[str, Callable[[str], str]] = {
    "docs/cli.md": lambda _: command_page(build_parser()),
    "docs/configuration.md": with_current_table,
}
"""Generators by page. They get the old text."""


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Check the pages or, with --write, write them. Return the exit code."""
    parser = argparse.ArgumentParser(description="Check the pages that are made from the code.")
    parser.add_argument("--write", action="store_true", help="write them")
    chosen = parser.parse_args(arguments)
    code = 0
    for name, render in PAGES.items():
        page = root / name
        old = page.read_text("utf-8")
        if old == (new := render(old)):
            continue
        if chosen.write:
            page.write_text(new, "utf-8")
        else:
            sys.stderr.write(f"{name} is out of date; run this with --write\n")
            code = 1
    return code


if __name__ == "__main__":
    raise SystemExit(main())
