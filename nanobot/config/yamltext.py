"""YAML that a person wrote: read into a document that remembers lines, and changed in place.

PyYAML's safe loader only composes nodes and never builds objects. Tags and several documents are
rejected, because a configuration needs none. The parser's messages about broken YAML are jargon and
may quote the text, so only the line number is used."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import yaml
from msgspec import Struct

from nanobot.config.document import ConfigDocument, ConfigPlace, Value, label
from nanobot.errors import ConfigError, NanobotError
from nanobot.validation import KeyPath

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # C if installed
_NULL = "tag:yaml.org,2002:null"
_PLAIN = {
    f"tag:yaml.org,2002:{kind}"
    for kind in ("str", "int", "float", "bool", "null", "timestamp", "merge", "value", "map", "seq")
}
_DEEPEST = 20  # levels of nesting
_MOST_VALUES = 20_000
"""References (`*name`) can expand a few lines into more values than memory holds."""
_BROKEN = (
    "is not valid YAML",
    "In this line and the one above it, check the indentation (spaces, not tabs), and look for a "
    "missing ':' or quotation mark. Quote a value that contains ': ' or begins with one of @ ` % "
    "* ! & [ {.",
)


def parse_config(text: str, document: ConfigDocument) -> None:
    """Read a configuration file's text into the document, or nothing if it is not YAML."""
    place = document.places[()]
    root = compose_yaml(text, place, document)
    if root is not None:
        values = _Reader(document, keeps_places=True).read(root, place, ())
        if isinstance(values, dict):
            document.values = values
        elif values is not None:
            hint = "Write sections with keys below them, such as `agent:` and `  on_busy: queue`."
            where = ConfigPlace(place.file, root.start_mark.line + 1)
            document.file_problem(where, "must contain sections with keys", hint)


def parse_value(text: str, place: ConfigPlace, path: KeyPath, document: ConfigDocument) -> Value:
    """Return the value for the key at `path` from YAML outside a file, None if it is broken."""
    root = compose_yaml(text, place, document)
    return None if root is None else _Reader(document).read(root, place, path)


def compose_yaml(text: str, place: ConfigPlace, document: ConfigDocument) -> yaml.Node | None:
    try:
        return yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        # An unclosed quote or bracket is found at the end, so report its beginning.
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
    """Reader that turns YAML nodes into values. An override has one place as a whole. Otherwise the
    document records the place of each key."""

    def __init__(self, document: ConfigDocument, *, keeps_places: bool = False) -> None:
        self._document, self._keeps_places = document, keeps_places
        self._left = _MOST_VALUES

    def read(self, node: yaml.Node, place: ConfigPlace, path: KeyPath) -> Value:
        """Return the value of a node. Invalid content becomes an empty text and a problem."""
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
            return self._read_section(node, place, path)
        if isinstance(node, yaml.SequenceNode):
            return [
                self.read(item, self._record_place(item, place, (*path, index)), (*path, index))
                for index, item in enumerate(node.value)
            ]
        if self._keeps_places:
            self._document.spans[path] = node.start_mark.index, node.end_mark.index
        return None if node.tag == _NULL else str(node.value)

    def _read_section(
        self, node: yaml.MappingNode, place: ConfigPlace, path: KeyPath
    ) -> dict[str, Value]:
        values: dict[str, Value] = {}
        for key_node, value_node in node.value:
            key, where = key_node.value, self._record_place(key_node, place)
            if not isinstance(key_node, yaml.ScalarNode):
                message = "has a key that is not a plain word"
                self._document.problem_at(where, label(where, path), message)
            elif key in values:
                hint, name = "Remove one of them.", label(where, (*path, key))
                self._document.file_problem(where, "appears twice", hint, name)
            else:
                where = self._record_place(key_node, place, (*path, key))
                values[key] = self.read(value_node, where, (*path, key))
        return values

    def _record_place(
        self, node: yaml.Node, around: ConfigPlace, path: KeyPath = ()
    ) -> ConfigPlace:
        """Return the place of a node, and record it as the place of `path`."""
        if not self._keeps_places:
            return around
        place = ConfigPlace(around.file, node.start_mark.line + 1)
        if path:
            self._document.places[path] = place
        return place


Setting = str | bool | int | float | tuple["Setting", ...] | Mapping[str, "Setting"] | None
"""A value to write. A tuple is a list. None removes the key."""

_UNQUOTED = re.compile(r"[A-Za-z/$][A-Za-z0-9_./${}-]*(?::[A-Za-z0-9_./-]+)*", re.ASCII)
_MEANS_ELSE = frozenset({"true", "false", "yes", "no", "on", "null"})  # YAML readers convert them


class ConfigChange(Struct, frozen=True):
    """A value for the key at `path`. None removes the key and everything below it."""

    path: tuple[str, ...]
    value: Setting

    def as_written(self) -> str:
        """Return the value in YAML."""
        match self.value:
            case bool() | int() | float():
                return str(self.value).lower()
            case str() if _UNQUOTED.fullmatch(self.value) and self.value.lower() not in _MEANS_ELSE:
                return self.value
            case _:
                return json.dumps(self.as_read(), ensure_ascii=False)

    def as_read(self) -> Value:
        """Return the value in the form of `value_at`."""
        return convert_scalars(self.value)


def convert_scalars(value: Setting) -> Value:
    match value:
        case None | str():
            return value
        case tuple():
            return [convert_scalars(item) for item in value]
        case Mapping():
            return {key: convert_scalars(item) for key, item in value.items()}
    return str(value).lower()


def edit_error(change: ConfigChange) -> NanobotError:
    """Return the error for a text that only a person can change."""
    key = ".".join(change.path)
    hint = "Remove it by hand."
    if change.value is not None:
        hint = f"Add it by hand: {key}: {change.as_written()}"
    return NanobotError(f"{key} in config.yaml cannot be changed automatically", hint=hint)


def edit_text(text: str, changes: Iterable[ConfigChange]) -> str:
    """Return `text`, which is valid, with these values in it. Invariant: every byte outside a
    changed value stays, including comments and order. The result has the requested values, or
    `NanobotError` is raised. Only block style is written."""
    for change in changes:
        wanted = parse_document(text)
        if change.value is None and change.path not in wanted.places:
            continue
        wanted.override(change.path, change.as_read(), ConfigPlace("config.yaml"))
        text = remove_lines(text, change) if change.value is None else replace_value(text, change)
        try:
            is_so = drop_empty_sections(parse_document(text).values) == drop_empty_sections(
                wanted.values
            )
        except ConfigError:  # our edit's fault: the text was valid before
            is_so = False
        if not is_so:
            raise edit_error(change)
    return text


def value_at(text: str, path: Sequence[str]) -> Value:
    """Return the value at `path` as it is written, or None."""
    return parse_document(text).get(tuple(path))


def mask_values(text: str, mask: Callable[[KeyPath, str], str | None]) -> str:
    """Return `text`, which is valid, with values replaced by `mask`, which is called with the path
    and text of each value. None keeps a value."""
    document, spans = parse_document(text), dict[int, tuple[int, str]]()
    for path, (start, end) in document.spans.items():
        if (instead := mask(path, str(document.get(path) or ""))) is not None:
            line = "\n" if text[:end].endswith("\n") else ""
            spans[start] = (end, instead + line)
    for start in sorted(spans, reverse=True):  # from the end, so that positions stay valid
        end, instead = spans[start]
        text = text[:start] + instead + text[end:]
    return text


def parse_document(text: str) -> ConfigDocument:
    document = ConfigDocument("config.yaml")
    parse_config(text, document)
    document.raise_if_any()
    return document


def replace_value(text: str, change: ConfigChange) -> str:
    node: yaml.Node | None = yaml.compose(text, Loader=_LOADER)
    if node is None:
        return append_section(text, change, 0)
    for depth, key in enumerate(change.path):
        if (found := find_entry(node, key, change)) is None:
            indent = node.value[0][0].start_mark.column
            if depth == 0:
                return append_section(text, change, indent)
            return insert_lines(text, end_of(node), change, depth, indent)
        name, node = found
        is_empty = node.tag == _NULL or (isinstance(node, yaml.MappingNode) and not node.value)
        if is_empty and depth + 1 < len(change.path):
            start = name.end_mark.index
            bare = f"{text[:start]}:{text[max(end_of(node), start + 1) :]}"
            return insert_lines(bare, start + 1, change, depth + 1, name.start_mark.column + 2)
    # The new value is on the line of the key. Comments around the old one stay.
    colon = text.index(":", name.end_mark.index) + 1
    before, rest = text[colon : node.start_mark.index].rstrip(), text[end_of(node) :]
    if text[: end_of(node)].endswith("\n"):  # a block of text includes its line end
        rest = "\n" + rest
    return f"{text[:colon]} {change.as_written()}{before}{rest}"


def find_entry(
    node: yaml.Node | None, key: str, change: ConfigChange
) -> tuple[yaml.Node, yaml.Node] | None:
    """Return the key and the value of an entry of a section, or None. Raise `NanobotError` unless
    the section is in block style."""
    if not isinstance(node, yaml.MappingNode) or (node.flow_style and node.value):
        raise edit_error(change)
    return next((pair for pair in node.value if pair[0].value == key), None)


def drop_empty_sections(value: Value) -> Value:
    """Return a value without its keys that have no value, and without sections of such keys."""
    if not isinstance(value, dict):
        return value
    inner: dict[str, Value] = {key: drop_empty_sections(item) for key, item in value.items()}
    return {key: said for key, said in inner.items() if said is not None} or None


def remove_lines(text: str, change: ConfigChange) -> str:
    """Remove the lines of the key and its value, but not comments above it."""
    node: yaml.Node | None = yaml.compose(text, Loader=_LOADER)
    for key in change.path:
        found = find_entry(node, key, change)
        assert found is not None  # checked in `edit_text`
        name, node = found
    assert node is not None
    start = text.rfind("\n", 0, name.start_mark.index) + 1
    end = end_of(node)
    if not text[:end].endswith("\n"):  # a block of text includes its line end
        end = text.find("\n", end) + 1 or len(text)
    return text[:start] + text[end:]


def append_section(text: str, change: ConfigChange, indent: int) -> str:
    """Append the change as a new section."""
    if text and not text.endswith("\n"):
        text += "\n"
    return text + ("\n" if text.strip() else "") + render_lines(change, 0, indent)


def insert_lines(text: str, index: int, change: ConfigChange, depth: int, indent: int) -> str:
    """Insert the change after the line of the character before `index`."""
    end = text.find("\n", index - 1) + 1 or len(text)
    before = text[:end] if text[:end].endswith("\n") else text[:end] + "\n"
    return before + render_lines(change, depth, indent) + text[end:]


def render_lines(change: ConfigChange, depth: int, indent: int) -> str:
    """Return the path from `depth` on as lines."""
    *outer, last = change.path[depth:]
    lines = [f"{key}:" for key in outer] + [f"{last}: {change.as_written()}"]
    return "".join(f"{' ' * (indent + 2 * at)}{line}\n" for at, line in enumerate(lines))


def end_of(node: yaml.Node) -> int:
    """Return the end of a node. The parser ends a block where the next thing begins."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return end_of(last[1] if isinstance(last, tuple) else last)
    return int(node.end_mark.index)
