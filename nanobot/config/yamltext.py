"""YAML that a person wrote: read into a document that remembers lines, and changed in place.

Nodes are composed by PyYAML's safe loader, never built into objects; tags and several documents are
refused, since a configuration needs none. What the parser says about broken YAML is jargon and may
quote the text, so only the line is taken from it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import yaml
from msgspec import Struct

from nanobot.config.document import ConfigDocument, ConfigPlace, Value, label
from nanobot.errors import ConfigError, NanobotError
from nanobot.validation import KeyPath

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL = "tag:yaml.org,2002:null"
_PLAIN = {
    f"tag:yaml.org,2002:{kind}"
    for kind in ("str", "int", "float", "bool", "null", "timestamp", "merge", "value", "map", "seq")
}
_DEEPEST = 20
_MOST_VALUES = 20_000
"""References (`*name`) can make a few lines into more values than memory holds."""
_BROKEN = (
    "is not valid YAML",
    "Check this line and the one above it: the indentation (spaces, not tabs), or a missing "
    "':' or quote. Quote a value that contains ': ' or begins with one of @ ` % * ! & [ {.",
)


def parse_config(text: str, document: ConfigDocument) -> None:
    """Put what a configuration file says into the document; nothing where it is no YAML."""
    place = document.places[()]
    root = _compose(text, place, document)
    if root is not None:
        values = _Reader(document, keeps_places=True).read(root, place, ())
        if isinstance(values, dict):
            document.values = values
        elif values is not None:
            hint = "Write sections with keys below them, such as `agent:` and `  on_busy: queue`."
            where = ConfigPlace(place.file, root.start_mark.line + 1)
            document.file_problem(where, "must contain sections with keys", hint)


def parse_override(text: str, place: ConfigPlace, path: KeyPath, document: ConfigDocument) -> Value:
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


def _compose(text: str, place: ConfigPlace, document: ConfigDocument) -> yaml.Node | None:
    try:
        return yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        # A quote or a bracket that is not closed is found at the end, and begins elsewhere.
        is_open = re.search("quoted|flow", error.context or "")
        mark = error.context_mark if is_open else error.problem_mark
        line = mark.line + 1 if mark else 0
    except (yaml.YAMLError, RecursionError):
        line = 0
    if place.variable:
        document.problem_at(place, place.variable, *_BROKEN)
    else:
        document.file_problem(ConfigPlace(place.file, line), *_BROKEN)
    return None


class _Reader:
    """Turns YAML nodes into values. An override has one place as a whole; otherwise the
    document records the place of each key."""

    def __init__(self, document: ConfigDocument, *, keeps_places: bool = False) -> None:
        self._document, self._keeps_places = document, keeps_places
        self._left = _MOST_VALUES

    def read(self, node: yaml.Node, place: ConfigPlace, path: KeyPath) -> Value:
        """The value of a node; what a configuration may not hold is an empty text and a problem."""
        self._left -= 1
        if self._left < 0:
            self._document.problem_at(
                ConfigPlace(place.file), "", f"has more than {_MOST_VALUES} values"
            )
            return ""
        if len(path) > _DEEPEST:
            self._document.problem_at(place, label(place, path[:2]), "is nested too deeply")
            return ""
        if node.tag not in _PLAIN:
            message = "starts with '!', which YAML reads as a tag"
            self._document.problem_at(place, label(place, path), message, "Quote it.")
            return ""
        if isinstance(node, yaml.MappingNode):
            return self._section(node, place, path)
        if isinstance(node, yaml.SequenceNode):
            return [
                self.read(item, self._place(item, place, (*path, index)), (*path, index))
                for index, item in enumerate(node.value)
            ]
        if self._keeps_places:
            self._document.spans[path] = node.start_mark.index, node.end_mark.index
        return None if node.tag == _NULL else str(node.value)

    def _section(
        self, node: yaml.MappingNode, place: ConfigPlace, path: KeyPath
    ) -> dict[str, Value]:
        values: dict[str, Value] = {}
        for key_node, value_node in node.value:
            key, where = key_node.value, self._place(key_node, place)
            if not isinstance(key_node, yaml.ScalarNode):
                message = "has a key that is not a plain word"
                self._document.problem_at(where, label(where, path), message)
            elif key in values:
                hint, name = "Remove one of them.", label(where, (*path, key))
                self._document.file_problem(where, "appears twice", hint, name)
            else:
                where = self._place(key_node, place, (*path, key))
                values[key] = self.read(value_node, where, (*path, key))
        return values

    def _place(self, node: yaml.Node, around: ConfigPlace, path: KeyPath = ()) -> ConfigPlace:
        """Where a node stands, kept as the place of `path`."""
        if not self._keeps_places:
            return around
        place = ConfigPlace(around.file, node.start_mark.line + 1)
        if path:
            self._document.places[path] = place
        return place


Setting = str | bool | int | float | tuple["Setting", ...] | Mapping[str, "Setting"] | None
"""A value to write; a tuple is a list. None: the key is taken out."""

_UNQUOTED = re.compile(r"[A-Za-z/$][A-Za-z0-9_./${}-]*(?::[A-Za-z0-9_./-]+)*", re.ASCII)
_MEANS_ELSE = frozenset({"true", "false", "yes", "no", "on", "null"})


class ConfigChange(Struct, frozen=True):
    """A value for the key at `path`; None takes the key out, and what stands beneath it."""

    path: tuple[str, ...]
    value: Setting

    def as_written(self) -> str:
        """The value in YAML."""
        match self.value:
            case bool() | int() | float():
                return str(self.value).lower()
            case str() if _UNQUOTED.fullmatch(self.value) and self.value.lower() not in _MEANS_ELSE:
                return self.value
            case _:
                return json.dumps(self.as_read(), ensure_ascii=False)

    def as_read(self) -> Value:
        """The value as `value_at` gives it."""
        return _as_texts(self.value)


def _as_texts(value: Setting) -> Value:
    match value:
        case None | str():
            return value
        case tuple():
            return [_as_texts(item) for item in value]
        case Mapping():
            return {key: _as_texts(item) for key, item in value.items()}
    return str(value).lower()


def _cannot_edit(change: ConfigChange) -> NanobotError:
    """The error for a text that only a person can change."""
    key = ".".join(change.path)
    hint = "Remove it by hand."
    if change.value is not None:
        hint = f"Add it by hand: {key}: {change.as_written()}"
    return NanobotError(f"{key} in config.yaml cannot be changed automatically", hint=hint)


def edit_text(text: str, changes: Iterable[ConfigChange]) -> str:
    """`text`, which is valid, with these values in it. Invariant: every byte that is not part of a
    changed value stays, comments and order included, and the result says what was wanted or
    `NanobotError` is raised. Only block style is written."""
    for change in changes:
        wanted = _document(text)
        if change.value is None and change.path not in wanted.places:
            continue
        wanted.override(change.path, change.as_read(), ConfigPlace("config.yaml"))
        text = _remove_lines(text, change) if change.value is None else _replace_value(text, change)
        try:
            is_so = _drop_empty(_document(text).values) == _drop_empty(wanted.values)
        except ConfigError:  # of our making: the text was valid before
            is_so = False
        if not is_so:
            raise _cannot_edit(change)
    return text


def value_at(text: str, path: Sequence[str]) -> Value:
    """What is written at `path`, as it is written; None for nothing."""
    return _document(text).get(tuple(path))


def mask_values(text: str, mask: Callable[[KeyPath, str], str | None]) -> str:
    """`text`, which is valid, with what `mask` gives in place of a value; None leaves it. It is
    asked about each value with its path and what it says."""
    document, spans = _document(text), dict[int, tuple[int, str]]()
    for path, (start, end) in document.spans.items():
        if (instead := mask(path, str(document.get(path) or ""))) is not None:
            line = "\n" if text[:end].endswith("\n") else ""
            spans[start] = (end, instead + line)
    for start in sorted(spans, reverse=True):
        end, instead = spans[start]
        text = text[:start] + instead + text[end:]
    return text


def _document(text: str) -> ConfigDocument:
    document = ConfigDocument("config.yaml")
    parse_config(text, document)
    document.raise_if_any()
    return document


def _replace_value(text: str, change: ConfigChange) -> str:
    node: yaml.Node | None = yaml.compose(text, Loader=_LOADER)
    if node is None:
        return _append_section(text, change, 0)
    for depth, key in enumerate(change.path):
        if (found := _entry(node, key, change)) is None:
            indent = node.value[0][0].start_mark.column
            if depth == 0:
                return _append_section(text, change, indent)
            return _insert_lines(text, _end(node), change, depth, indent)
        name, node = found
        is_empty = node.tag == _NULL or (isinstance(node, yaml.MappingNode) and not node.value)
        if is_empty and depth + 1 < len(change.path):
            start = name.end_mark.index
            bare = f"{text[:start]}:{text[max(_end(node), start + 1) :]}"
            return _insert_lines(bare, start + 1, change, depth + 1, name.start_mark.column + 2)
    # The new value goes on the line of the key; comments around the old one stay.
    colon = text.index(":", name.end_mark.index) + 1
    before, rest = text[colon : node.start_mark.index].rstrip(), text[_end(node) :]
    if text[: _end(node)].endswith("\n"):  # a block of text takes its line end with it
        rest = "\n" + rest
    return f"{text[:colon]} {change.as_written()}{before}{rest}"


def _entry(
    node: yaml.Node | None, key: str, change: ConfigChange
) -> tuple[yaml.Node, yaml.Node] | None:
    """The key and the value of an entry of a section. Raises `NanobotError` unless the section is
    in block style."""
    if not isinstance(node, yaml.MappingNode) or (node.flow_style and node.value):
        raise _cannot_edit(change)
    return next((pair for pair in node.value if pair[0].value == key), None)


def _drop_empty(value: Value) -> Value:
    """A value less what says nothing in it: keys without a value, and sections of such keys."""
    if not isinstance(value, dict):
        return value
    inner: dict[str, Value] = {key: _drop_empty(item) for key, item in value.items()}
    return {key: said for key, said in inner.items() if said is not None} or None


def _remove_lines(text: str, change: ConfigChange) -> str:
    """Without the lines of the key and its value; comments above it stay."""
    node: yaml.Node | None = yaml.compose(text, Loader=_LOADER)
    for key in change.path:
        found = _entry(node, key, change)
        assert found is not None  # `edited` has seen the key
        name, node = found
    assert node is not None
    start = text.rfind("\n", 0, name.start_mark.index) + 1
    end = _end(node)
    if not text[:end].endswith("\n"):  # else a block of text, which takes its line end with it
        end = text.find("\n", end) + 1 or len(text)
    return text[:start] + text[end:]


def _append_section(text: str, change: ConfigChange, indent: int) -> str:
    """At the end of the text, as a section of its own."""
    if text and not text.endswith("\n"):
        text += "\n"
    return text + ("\n" if text.strip() else "") + _lines(change, 0, indent)


def _insert_lines(text: str, index: int, change: ConfigChange, depth: int, indent: int) -> str:
    """After the line in which the character before `index` stands."""
    end = text.find("\n", index - 1) + 1 or len(text)
    before = text[:end] if text[:end].endswith("\n") else text[:end] + "\n"
    return before + _lines(change, depth, indent) + text[end:]


def _lines(change: ConfigChange, depth: int, indent: int) -> str:
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
