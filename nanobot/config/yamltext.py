"""YAML into a tree that remembers lines. Nodes are composed by PyYAML's safe loader, never built
into objects; anchors, tags and several documents are refused, since a configuration needs none.

What the parser says about broken YAML is jargon and may quote the text, so the explanation is made
here from the look of the line.
"""

from __future__ import annotations

import re

import yaml

from nanobot.config.findings import Findings, Place
from nanobot.config.tree import Items, Node, Nothing, Path, Section, Text, label

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL = "tag:yaml.org,2002:null"
_PLAIN = {
    f"tag:yaml.org,2002:{kind}"
    for kind in ("str", "int", "float", "bool", "null", "timestamp", "merge", "value", "map", "seq")
}
_DEEPEST = 20
_LOOK = "Look at this line and the one above it: the indentation, a missing ':' or quote."
_QUOTE = "Put the value in quotes."


def parse_config(text: str, file: str, findings: Findings) -> Section:
    """The sections of a configuration file; empty where it cannot be read as YAML."""
    top = Place(file)
    root = _compose(text, top, findings)
    if root is None:
        return Section(top, {})
    tree = _Walk(findings).node(root, Place(file, root.start_mark.line + 1), ())
    if isinstance(tree, Section):
        return Section(top, tree.entries)
    if not isinstance(tree, Nothing):
        hint = "Write sections with keys beneath them, such as `agent:` and `  on_busy: queue`."
        findings.broken(tree.place, "must hold sections with keys", hint)
    return Section(top, {})


def parse_override(text: str, place: Place, path: Path, findings: Findings) -> Node:
    """The value of a variable that overrides the key at `path`.

    A list, a mapping or a quoted text is read as YAML; anything else stands for itself, so that no
    key or password ever needs quoting.
    """
    stripped = text.strip()
    if stripped in ("", "~", "null"):
        return Nothing(place)
    if stripped[0] not in "[{\"'":
        return Text(place, stripped, literal=False)
    root = _compose(stripped, place, findings)
    return Nothing(place) if root is None else _Walk(findings, fixed=place).node(root, place, path)


def _compose(text: str, place: Place, findings: Findings) -> yaml.Node | None:
    try:
        return yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        line, message, hint = _explained(error, text.splitlines())
    except (yaml.YAMLError, RecursionError):
        line, message, hint = 0, "is not valid YAML", _LOOK
    if place.variable:
        findings.problem(place, place.variable, message, hint)
    else:
        findings.broken(Place(place.file, line), message, hint)
    return None


class _Walk:
    """Turns YAML nodes into a tree. `fixed` is the place of everything, for overrides."""

    def __init__(self, findings: Findings, fixed: Place | None = None) -> None:
        self._findings = findings
        self._fixed = fixed
        self._seen: set[int] = set()

    def node(self, node: yaml.Node, place: Place, path: Path) -> Node:
        if self._refused(node, place, path):
            return Text(place, "")
        if isinstance(node, yaml.MappingNode):
            return self._section(node, place, path)
        if isinstance(node, yaml.SequenceNode):
            items = [
                self.node(item, self._place(item, place), (*path, index))
                for index, item in enumerate(node.value)
            ]
            return Items(place, tuple(items))
        if node.tag == _NULL:
            return Nothing(place)
        return Text(place, node.value, literal=self._fixed is None)

    def _refused(self, node: yaml.Node, place: Place, path: Path) -> bool:
        """Whether the node is of a kind that a configuration may not hold; that is then noted."""
        if id(node) in self._seen:
            self._refuse(place, path, "is a YAML reference (*name)", "Write the value out.")
        elif len(path) > _DEEPEST:
            self._refuse(place, path[:2], "is nested too deeply", _LOOK)
        elif node.tag not in _PLAIN:
            self._refuse(place, path, "starts with '!', which YAML reads as a tag", _QUOTE)
        else:
            self._seen.add(id(node))
            return False
        return True

    def _section(self, node: yaml.MappingNode, place: Place, path: Path) -> Section:
        entries: dict[str, Node] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            where = self._place(key_node, place)
            if not isinstance(key_node, yaml.ScalarNode):
                self._refuse(where, path, "has a key that is not a plain word", _LOOK)
                continue
            key = key_node.value
            if key in entries:
                message = f"stands here a second time; the first is in line {lines[key]}"
                hint = "Keep one of the two."
                self._findings.broken(where, message, hint, label(where, (*path, key)))
                continue
            lines[key] = where.line
            entries[key] = self.node(value_node, where, (*path, key))
        return Section(place, entries)

    def _place(self, node: yaml.Node, around: Place) -> Place:
        return self._fixed or Place(around.file, node.start_mark.line + 1)

    def _refuse(self, place: Place, path: Path, message: str, hint: str) -> None:
        self._findings.problem(place, label(place, path), message, hint)


def _explained(error: yaml.MarkedYAMLError, lines: list[str]) -> tuple[int, str, str]:
    """Line (1-based), message and hint."""
    opened = error.context_mark
    if opened is not None and (sign := _at(lines, opened.line, opened.column)) in "\"'[{":
        what = "bracket" if sign in "[{" else "quote"
        hint = f"Close the {what}; a value that begins with one must be in quotes as a whole."
        return opened.line + 1, f"the {what} {sign} that begins here does not end well", hint
    mark = error.problem_mark or opened
    if mark is None:
        return 0, "is not valid YAML", _LOOK
    for index in (mark.line, mark.line - 1):
        if re.match(r" *\t", _at(lines, index)):
            hint = "Replace each tab by two spaces."
            return index + 1, "is indented with a tab, which YAML does not allow", hint
    return mark.line + 1, *_look_of(_at(lines, mark.line))


def _look_of(line: str) -> tuple[str, str]:
    value = line.partition(": ")[2].strip()
    if value[:1] in ("@", "`", "%", "*"):
        return f"the value begins with {value[0]}, which has a meaning of its own in YAML", _QUOTE
    if ": " in value or value.endswith(":"):
        return "the value holds a second ': '", _QUOTE
    if line.startswith(("---", "...")):
        return "a second document begins here", "Keep everything in one."
    return "is not valid YAML", _LOOK


def _at(lines: list[str], index: int, column: int | None = None) -> str:
    if not 0 <= index < len(lines):
        return " "
    return lines[index] if column is None else lines[index][column : column + 1] or " "
