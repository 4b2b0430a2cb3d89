"""Changing single values in a configuration that a person wrote: pure, from text to text.

What always holds: every byte that is not part of a changed value stays, comments and order
included, and the result says what was wanted or `CannotEdit` is raised. The places come from the
parser's own marks; only block style is written, and a new key comes with a comment above it. (A
round trip through a document model would be shorter, and would write other people's indentation,
quotes and numbers anew.)

The text of secrets.env, for those who read and write it: a line `NAME=value` for each secret.
Pure.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import yaml

from nanobot.config.findings import Findings
from nanobot.config.tree import Plain, plain
from nanobot.config.yamltext import parse_config
from nanobot.errors import ConfigError, NanobotError

Value = str | bool | int | tuple[str, ...]
"""A tuple is a list of texts."""

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_WIDTH = 100
_UNQUOTED = re.compile(r"[A-Za-z/$][A-Za-z0-9_./${}-]*(?::[A-Za-z0-9_./-]+)*", re.ASCII)
_MEANS_ELSE = frozenset({"true", "false", "yes", "no", "on", "null"})
_BLOCK = ("|", ">")


@dataclass(frozen=True, slots=True)
class Change:
    """A value for the key at `path`; `comment` is put above the key where it is new."""

    path: tuple[str, ...]
    value: Value
    comment: str = ""


class CannotEdit(NanobotError):
    """The text is written in a way that cannot be changed without a person."""

    def __init__(self, change: Change) -> None:
        super().__init__(
            f"{'.'.join(change.path)} cannot be put into config.yaml without touching the rest",
            hint=f"Write it there yourself: {'.'.join(change.path)}: {_rendered(change.value)}",
        )


def edited(text: str, changes: Iterable[Change]) -> str:
    """`text` with these values in it. Raises `CannotEdit`; the text must be valid before."""
    start = "\ufeff" if text.startswith("\ufeff") else ""
    text = text.removeprefix("\ufeff")
    for change in changes:
        before = _values(text)
        text = _Edit(text, change).done()
        wanted = _with(before, change.path, change.value)
        try:
            is_so = _values(text) == wanted
        except ConfigError:  # of our making: the text was valid before
            is_so = False
        if not is_so:
            raise CannotEdit(change)
    return start + text


def value_at(text: str, path: Sequence[str]) -> Plain:
    """What is written at `path`, as it is written; None for nothing."""
    found: Plain = _values(text.removeprefix("\ufeff"))
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found


class _Edit:
    """One change to one text."""

    def __init__(self, text: str, change: Change) -> None:
        self._text, self._change = text, change
        self._newline = "\r\n" if "\r\n" in text else "\n"

    def done(self) -> str:
        root = yaml.compose(self._text, Loader=_LOADER)
        if root is None:
            return self._appended()
        node: yaml.Node = root
        for depth, key in enumerate(self._change.path):
            if not isinstance(node, yaml.MappingNode):
                raise CannotEdit(self._change)
            below = {name.value: (name, value) for name, value in node.value}
            if key not in below:
                return self._added(node, depth)
            name, node = below[key]
            if _is_empty(node) and depth + 1 < len(self._change.path):
                return self._filled(name, node, depth + 1)
        if _is_hanging(name, node):
            return self._behind(name, node)
        return self._replaced(node)

    def _appended(self, indent: int = 0) -> str:
        """At the end of the text, as a section of its own."""
        whole = self._text.endswith("\n") or not self._text
        text = self._text if whole else self._text + self._newline
        blank = self._newline if text.strip() else ""
        return text + blank + self._lines(0, indent)

    def _added(self, node: yaml.MappingNode, depth: int) -> str:
        if node.flow_style:
            return self._added_in_line(node, depth)
        indent = node.value[0][0].start_mark.column
        if depth == 0:
            return self._appended(indent)
        return self._after_line(_end(node), self._lines(depth, indent))

    def _added_in_line(self, node: yaml.MappingNode, depth: int) -> str:
        """Before the brace that closes a mapping on one line."""
        path, value = self._change.path[depth:], self._change.value
        written = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else None
        entry = ": {".join(path) + f": {written or _rendered(value)}" + "}" * (len(path) - 1)
        before = self._text[: node.end_mark.index - 1].rstrip()
        between = " " if before.endswith(",") else ", " if node.value else ""
        return f"{before}{between}{entry}{self._text[len(before) :]}"

    def _filled(self, name: yaml.Node, node: yaml.Node, depth: int) -> str:
        """Beneath a key that has nothing beneath it so far."""
        start, end = name.end_mark.index, _end(node)
        bare = self._text[:start] + ":" + self._text[max(end, start + 1) :]
        lines = self._lines(depth, name.start_mark.column + 2)
        return _Edit(bare, self._change)._after_line(start + 1, lines)

    def _replaced(self, node: yaml.Node) -> str:
        start, end = node.start_mark.index, _end(node)
        value = _rendered(self._change.value)
        space = "" if self._text[start - 1 : start] in (" ", "\n") else " "
        tail = self._newline if self._text[start:end].startswith(_BLOCK) else ""
        return f"{self._text[:start]}{space}{value}{tail}{self._text[end:]}"

    def _behind(self, name: yaml.Node, node: yaml.Node) -> str:
        """On the line of the key, in place of a list beneath it that is not indented."""
        colon = self._text.index(":", name.end_mark.index) + 1
        between, rest = self._text[colon : node.start_mark.index], self._text[_end(node) :]
        if not rest.lstrip(" ").startswith("#"):  # nothing is left of the list's last line
            between = between.rstrip()
        return f"{self._text[:colon]} {_rendered(self._change.value)}{between}{rest}"

    def _after_line(self, index: int, lines: str) -> str:
        """With `lines` after the line in which the character before `index` stands."""
        end = self._text.find("\n", index - 1) + 1
        if end == 0:
            return f"{self._text}{self._newline}{lines}"
        return self._text[:end] + lines + self._text[end:]

    def _lines(self, depth: int, indent: int) -> str:
        """What is left of the path from `depth` on, in lines of its own."""
        *outer, last = self._change.path[depth:]
        lines = []
        for key in outer:
            lines.append(f"{' ' * indent}{key}:")
            indent += 2
        space = " " * indent
        lines += textwrap.wrap(
            self._change.comment,
            _WIDTH,
            initial_indent=f"{space}# ",
            subsequent_indent=f"{space}# ",
        )
        lines.append(f"{space}{last}: {_rendered(self._change.value)}")
        return "".join(f"{line}{self._newline}" for line in lines)


def _end(node: yaml.Node) -> int:
    """Where a node ends: the parser has a block end where the next thing begins."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    return int(node.end_mark.index)


def _is_hanging(name: yaml.Node, node: yaml.Node) -> bool:
    """Whether a list has its dashes no further in than its key, where nothing else may stand."""
    is_block = isinstance(node, yaml.SequenceNode) and not node.flow_style
    return is_block and node.start_mark.column <= name.start_mark.column


def _is_empty(node: yaml.Node) -> bool:
    """Whether nothing is there: a key without a value, `null`, or `{}`."""
    if isinstance(node, yaml.MappingNode):
        return not node.value
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def _rendered(value: Value) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case tuple():
            return f"[{', '.join(json.dumps(item, ensure_ascii=False) for item in value)}]"
        case str() if _UNQUOTED.fullmatch(value) and value.lower() not in _MEANS_ELSE:
            return value
        case _:
            return json.dumps(value, ensure_ascii=False)


def _values(text: str) -> dict[str, Plain]:
    findings = Findings()
    tree = plain(parse_config(text, "config.yaml", findings))
    findings.raise_if_any()
    return tree if isinstance(tree, dict) else {}


def _with(values: dict[str, Plain], path: Sequence[str], value: Value) -> dict[str, Plain]:
    key, *rest = path
    if not rest:
        return {**values, key: _as_read(value)}
    inner = values.get(key)
    return {**values, key: _with(inner if isinstance(inner, dict) else {}, rest, value)}


def _as_read(value: Value) -> Plain:
    if isinstance(value, tuple):
        return list(value)
    return value if isinstance(value, str) else _rendered(value)
