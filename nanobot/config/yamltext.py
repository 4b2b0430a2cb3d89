"""YAML that a person wrote: read into a document that remembers lines, and changed in place.

Nodes are composed by PyYAML's safe loader, never built into objects; anchors, tags and several
documents are refused, since a configuration needs none. What the parser says about broken YAML is
jargon and may quote the text, so the explanation is worked out here from the line itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

import yaml
from msgspec import Struct

from nanobot.config.document import Document, Place, Value, label
from nanobot.errors import ConfigError, NanobotError
from nanobot.validation import KeyPath

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL = "tag:yaml.org,2002:null"
_PLAIN = {
    f"tag:yaml.org,2002:{kind}"
    for kind in ("str", "int", "float", "bool", "null", "timestamp", "merge", "value", "map", "seq")
}
_DEEPEST = 20
_LOOK = "Look at this line and the one above it: the indentation, a missing ':' or quote."
_QUOTE = "Put the value in quotes."


def parse_config(text: str, document: Document) -> None:
    """Put what a configuration file says into the document; nothing where it is no YAML."""
    place = document.places[()]
    root = _compose(text, place, document)
    if root is not None:
        values = _Reader(document, keeps_places=True).read(root, place, ())
        if isinstance(values, dict):
            document.values = values
        elif values is not None:
            hint = "Write sections with keys beneath them, such as `agent:` and `  on_busy: queue`."
            where = Place(place.file, root.start_mark.line + 1)
            document.broken(where, "must hold sections with keys", hint)


def parse_override(text: str, place: Place, path: KeyPath, document: Document) -> Value:
    """The value of a variable that overrides the key at `path`.

    A list, a mapping or a quoted text is read as YAML; anything else stands for itself, so that no
    key or password ever needs quoting.
    """
    text = text.strip()
    if text in ("", "~", "null"):
        return None
    if text[0] not in "[{\"'":
        return text
    root = _compose(text, place, document)
    return None if root is None else _Reader(document).read(root, place, path)


def _compose(text: str, place: Place, document: Document) -> yaml.Node | None:
    try:
        return yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        line, message, hint = _explained(error, text.splitlines())
    except (yaml.YAMLError, RecursionError):
        line, message, hint = 0, "is not valid YAML", _LOOK
    if place.variable:
        document.problem_at(place, place.variable, message, hint)
    else:
        document.broken(Place(place.file, line), message, hint)
    return None


class _Reader:
    """Turns YAML nodes into values. An override has one place as a whole; otherwise the
    document records the place of each key."""

    def __init__(self, document: Document, *, keeps_places: bool = False) -> None:
        self._document = document
        self._keeps_places = keeps_places
        self._seen: set[int] = set()

    def read(self, node: yaml.Node, place: Place, path: KeyPath) -> Value:
        """The value of a node; what a configuration may not hold is an empty text and a problem."""
        if id(node) in self._seen:
            self._refuse(place, path, "is a YAML reference (*name)", "Write the value out.")
        elif len(path) > _DEEPEST:
            self._refuse(place, path[:2], "is nested too deeply", _LOOK)
        elif node.tag not in _PLAIN:
            self._refuse(place, path, "starts with '!', which YAML reads as a tag", _QUOTE)
        else:
            self._seen.add(id(node))
            return self._value(node, place, path)
        return ""

    def _value(self, node: yaml.Node, place: Place, path: KeyPath) -> Value:
        if isinstance(node, yaml.MappingNode):
            return self._section(node, place, path)
        if isinstance(node, yaml.SequenceNode):
            return [
                self.read(item, self._place(item, place, (*path, index)), (*path, index))
                for index, item in enumerate(node.value)
            ]
        return None if node.tag == _NULL else str(node.value)

    def _section(self, node: yaml.MappingNode, place: Place, path: KeyPath) -> dict[str, Value]:
        values: dict[str, Value] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            key = key_node.value
            if not isinstance(key_node, yaml.ScalarNode):
                where = self._place(key_node, place)
                self._refuse(where, path, "has a key that is not a plain word", _LOOK)
            elif key in values:
                where = self._place(key_node, place)
                message = f"stands here a second time; the first is in line {lines[key]}"
                name = label(where, (*path, key))
                self._document.broken(where, message, "Keep one of the two.", name)
            else:
                where = self._place(key_node, place, (*path, key))
                lines[key] = where.line
                values[key] = self.read(value_node, where, (*path, key))
        return values

    def _place(self, node: yaml.Node, around: Place, path: KeyPath = ()) -> Place:
        """Where a node stands, kept as the place of `path`."""
        if not self._keeps_places:
            return around
        place = Place(around.file, node.start_mark.line + 1)
        if path:
            self._document.places[path] = place
        return place

    def _refuse(self, place: Place, path: KeyPath, message: str, hint: str) -> None:
        self._document.problem_at(place, label(place, path), message, hint)


def _explained(error: yaml.MarkedYAMLError, lines: list[str]) -> tuple[int, str, str]:
    """Line (1-based), message and hint."""
    opened = error.context_mark
    if opened is not None and _at(lines, opened.line)[opened.column] in "\"'[{":
        hint = "Close it; a value that begins with a quote or a bracket must be quoted as a whole."
        return opened.line + 1, "a quote or a bracket that begins here does not end well", hint
    mark = error.problem_mark or opened
    if mark is None:
        return 0, "is not valid YAML", _LOOK
    for index in (mark.line, mark.line - 1):
        if re.match(r" *\t", _at(lines, index)):
            hint = "Replace each tab by two spaces."
            return index + 1, "is indented with a tab, which YAML does not allow", hint
    value = _at(lines, mark.line).partition(": ")[2].strip()
    if value[:1] in ("@", "`", "%", "*") or ": " in value or value.endswith(":"):
        return mark.line + 1, "the value holds what has a meaning of its own in YAML", _QUOTE
    return mark.line + 1, "is not valid YAML", _LOOK


def _at(lines: list[str], index: int) -> str:
    """One line, and a blank, as what the parser stumbles on may be the line's end."""
    return f"{lines[index] if 0 <= index < len(lines) else ''} "


Setting = str | bool | int | tuple[str, ...]
"""A value to write; a tuple is a list of texts."""

_UNQUOTED = re.compile(r"[A-Za-z/$][A-Za-z0-9_./${}-]*(?::[A-Za-z0-9_./-]+)*", re.ASCII)
_MEANS_ELSE = frozenset({"true", "false", "yes", "no", "on", "null"})


class Change(Struct, frozen=True):
    """A value for the key at `path`."""

    path: tuple[str, ...]
    value: Setting

    def as_written(self) -> str:
        """The value in YAML."""
        match self.value:
            case bool() | int():
                return str(self.value).lower()
            case tuple():
                items = (json.dumps(item, ensure_ascii=False) for item in self.value)
                return f"[{', '.join(items)}]"
            case str() if _UNQUOTED.fullmatch(self.value) and self.value.lower() not in _MEANS_ELSE:
                return self.value
            case _:
                return json.dumps(self.value, ensure_ascii=False)

    def as_read(self) -> Value:
        """The value as `value_at` gives it."""
        if isinstance(self.value, tuple):
            return list(self.value)
        return self.value if isinstance(self.value, str) else self.as_written()


class CannotEdit(NanobotError):
    """The text is written in a way that cannot be changed without a person."""

    def __init__(self, change: Change) -> None:
        key = ".".join(change.path)
        super().__init__(
            f"{key} cannot be put into config.yaml without touching the rest",
            hint=f"Write it there yourself: {key}: {change.as_written()}",
        )


def edited(text: str, changes: Iterable[Change]) -> str:
    """`text`, which is valid, with these values in it. Invariant: every byte that is not part of a
    changed value stays, comments and order included, and the result says what was wanted or
    `CannotEdit` is raised. Only block style is written."""
    for change in changes:
        wanted = _with(_values(text), change.path, change.as_read())
        text = _changed(text, change)
        try:
            is_so = _values(text) == wanted
        except ConfigError:  # of our making: the text was valid before
            is_so = False
        if not is_so:
            raise CannotEdit(change)
    return text


def value_at(text: str, path: Sequence[str]) -> Value:
    """What is written at `path`, as it is written; None for nothing."""
    found: Value = _values(text)
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _changed(text: str, change: Change) -> str:
    node: yaml.Node | None = yaml.compose(text, Loader=_LOADER)
    if node is None:
        return _appended(text, change, 0)
    for depth, key in enumerate(change.path):
        if not isinstance(node, yaml.MappingNode) or (node.flow_style and node.value):
            raise CannotEdit(change)
        below = {name.value: (name, value) for name, value in node.value}
        if key not in below:
            indent = node.value[0][0].start_mark.column
            if depth == 0:
                return _appended(text, change, indent)
            return _inserted(text, _end(node), change, depth, indent)
        name, node = below[key]
        if _is_empty(node) and depth + 1 < len(change.path):  # beneath a key that has nothing
            start = name.end_mark.index
            bare = f"{text[:start]}:{text[max(_end(node), start + 1) :]}"
            return _inserted(bare, start + 1, change, depth + 1, name.start_mark.column + 2)
    return _replaced(text, name, node, change)


def _replaced(text: str, name: yaml.Node, node: yaml.Node, change: Change) -> str:
    """With the new value on the line of the key; comments around the old one stay."""
    colon = text.index(":", name.end_mark.index) + 1
    before, rest = text[colon : node.start_mark.index].rstrip(), text[_end(node) :]
    if text[: _end(node)].endswith("\n"):  # a block of text takes its line end with it
        rest = "\n" + rest
    return f"{text[:colon]} {change.as_written()}{before}{rest}"


def _appended(text: str, change: Change, indent: int) -> str:
    """At the end of the text, as a section of its own."""
    if text and not text.endswith("\n"):
        text += "\n"
    return text + ("\n" if text.strip() else "") + _lines(change, 0, indent)


def _inserted(text: str, index: int, change: Change, depth: int, indent: int) -> str:
    """After the line in which the character before `index` stands."""
    end = text.find("\n", index - 1) + 1 or len(text)
    before = text[:end] if text[:end].endswith("\n") else text[:end] + "\n"
    return before + _lines(change, depth, indent) + text[end:]


def _lines(change: Change, depth: int, indent: int) -> str:
    """What is left of the path from `depth` on, in lines of its own."""
    *outer, last = change.path[depth:]
    lines = [f"{key}:" for key in outer] + [f"{last}: {change.as_written()}"]
    return "".join(f"{' ' * (indent + 2 * at)}{line}\n" for at, line in enumerate(lines))


def _end(node: yaml.Node) -> int:
    """Where a node ends: the parser has a block end where the next thing begins."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    return int(node.end_mark.index)


def _is_empty(node: yaml.Node) -> bool:
    """Whether nothing is there: a key without a value, `null`, or `{}`."""
    return node.tag == _NULL or (isinstance(node, yaml.MappingNode) and not node.value)


def _values(text: str) -> dict[str, Value]:
    document = Document("config.yaml")
    parse_config(text, document)
    document.raise_if_any()
    return document.values


def _with(values: dict[str, Value], path: Sequence[str], value: Value) -> dict[str, Value]:
    key, *rest = path
    if rest:
        inner = values.get(key)
        value = _with(inner if isinstance(inner, dict) else {}, rest, value)
    return {**values, key: value}
