"""docs/cli.md matches the grammar, and no page or hint names a command that does not exist."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from nanobot.cli.command import WrongUsage
from nanobot.cli.parser import build_parser
from scripts.pages import command_page, main

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "channels" / "nanobot_whatsapp" / "bridge" / "README.md",
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if path.name != "cli.md"),
]
CODE = sorted(path for folder in ("nanobot", "channels") for path in (ROOT / folder).rglob("*.py"))

_BLOCK = re.compile(r"^ *```[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(?<!`)`((?:sudo )?(?:[A-Z_]+=\S+ )*nanobot(?: [^`\n]*)?)`")
_CALL = re.compile(r"^ *(?:\$ )?(?:sudo (?:-u \S+ )?)?(?:[A-Z_]+=\S+ )*nanobot(?= \S|$)")
_VALUES = {"N": "1", "DATE": "2026-11-21", "SHELL": "bash"}
_FILLED = "X"
"""Placeholder for a value that is only known at run time."""

_SUBCOMMANDS = argparse._SubParsersAction


def test_the_reference_of_the_command_line_is_current() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    assert page == command_page(build_parser()), "run `python -m scripts.pages --write`"


def test_a_page_that_is_out_of_date_is_named_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs").mkdir()
    for name in ("cli.md", "configuration.md"):
        (tmp_path / "docs" / name).write_text((ROOT / "docs" / name).read_text())
    (tmp_path / "docs" / "cli.md").write_text("old")
    assert main([], tmp_path) == 1
    assert capsys.readouterr().err == "docs/cli.md is out of date; run this with --write\n"
    assert main(["--write"], tmp_path) == 0
    assert main([], tmp_path) == 0


def test_the_reference_does_not_depend_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = command_page(build_parser())
    monkeypatch.setenv("COLUMNS", "20")
    assert command_page(build_parser()) == wide


@pytest.fixture(scope="module")
def grammar() -> Grammar:
    return Grammar(build_parser())


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_of_a_page_parses(page: Path, grammar: Grammar) -> None:
    text = page.read_text("utf-8")
    assert [line for line in _commands_in_page(text) if not grammar.takes(line)] == []


def test_every_command_in_hints_parses(grammar: Grammar) -> None:
    said = {
        (command, path.relative_to(ROOT))
        for path in CODE
        for command in _INLINE.findall(_join_strings(path.read_text("utf-8")))
    }
    assert [one for one in said if not grammar.takes(one[0])] == []


class Grammar:
    """Checks whether a text is a command line, possibly with words such as ID as placeholders. A
    group or a command may also be named without its arguments."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._parser = parser
        self._known: dict[str, bool] = {}

    def takes(self, command: str) -> bool:
        if command not in self._known:
            self._known[command] = self._takes(command)
        return self._known[command]

    def _takes(self, command: str) -> bool:
        line = re.split(r"\s(?:[|>&;]|2>|<)", _CALL.sub("", command, count=1))[0]
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            return False
        if words[:1] == ["COMMAND"]:
            return True
        # "…" is a value that is left out, or several words that may follow.
        filled = [words, [word for word in words if word != "…"]]
        filled += [[word for word in words if word not in ("…", _FILLED)]]
        filled += [["telegram:7" if word == _FILLED else word for word in words]]
        return any(all(map(self._is_one, _variants(one))) for one in filled)

    def _is_one(self, words: list[str]) -> bool:
        if self._names_a_command(words):
            return True
        try:
            self._parser.parse_args(words)
        except WrongUsage:
            return False
        except SystemExit as left:
            return left.code == 0  # --help and --version
        return True

    def _names_a_command(self, words: list[str]) -> bool:
        parser = self._parser
        for at, word in enumerate(words):
            if words[at:] == [word] and word in parser._option_string_actions:
                return True
            below = [action for action in parser._actions if isinstance(action, _SUBCOMMANDS)]
            if not below or word not in below[0].choices:
                return False
            parser = below[0].choices[word]
        return True


def _variants(words: list[str]) -> list[list[str]]:
    """Yield the command lines that a line with `a|b` and `[--x]` represents, with values in place
    of words if necessary."""
    found: list[list[str]] = [[]]
    for word in words:
        bare = word.strip("[]")
        choices = bare.split("|") if re.fullmatch(r"[\w|:-]+", bare) else [bare]
        found = [[*one, _VALUES.get(choice, choice)] for one in found for choice in choices]
    return found


def _join_strings(source: str) -> str:
    """Return the source with continued strings joined. A value in a string represents a word, or
    options that are added to one."""
    joined = re.sub(r'"\n\s*f?"', "", source)
    return re.sub(r"(?<=\s)\{[^{}]*\}", _FILLED, re.sub(r"(?<=\S)\{[^{}]*\}", "", joined))


def _commands_in_page(text: str) -> Iterator[str]:
    for block in _BLOCK.findall(text):
        lines = block.replace("\\\n", " ").splitlines()
        yield from (line for line in lines if _CALL.match(line))
    yield from _INLINE.findall(_BLOCK.sub("", text))
