"""A configuration as written: texts, lists and sections that know where they stand.

Scalars stay the text that a person wrote. What it means is decided by the field that takes it, so
`timestamps: off` is the word off, `allow_from: [+4915]` keeps its plus and `0123` its zero; YAML's
own guesses would turn these into False, 4915 and 83.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from nanobot.config.findings import Place

Plain = str | list["Plain"] | dict[str, "Plain"] | None
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Text:
    """A scalar. `literal` is false when some of it came from the environment."""

    place: Place
    value: str
    literal: bool = True


@dataclass(frozen=True, slots=True)
class Nothing:
    """A key without a value: it takes its default."""

    place: Place


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    place: Place
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """Keys with their values; the place of a value is that of its key."""

    place: Place
    entries: Mapping[str, Node]

    def only(self, keys: Sequence[str]) -> Section:
        """The same section with just these keys."""
        return replace(self, entries={k: v for k, v in self.entries.items() if k in keys})

    def without(self, keys: Sequence[str]) -> Section:
        """The same section less these keys."""
        return replace(self, entries={k: v for k, v in self.entries.items() if k not in keys})


Node = Text | Nothing | Items | Section


def plain(node: Node) -> Plain:
    """The bare values, for validation; keys without a value are left out."""
    match node:
        case Text(value=value):
            return value
        case Nothing():
            return None
        case Items(items=items):
            return [plain(item) for item in items]
        case Section(entries=entries):
            return {
                key: plain(value)
                for key, value in entries.items()
                if not isinstance(value, Nothing)
            }


def find(node: Node, path: Path) -> Node | None:
    """The node at `path`, or None where there is none."""
    for step in path:
        if isinstance(node, Section) and isinstance(step, str) and step in node.entries:
            node = node.entries[step]
        elif isinstance(node, Items) and isinstance(step, int) and step < len(node.items):
            node = node.items[step]
        else:
            return None
    return node


def place_of(root: Section, path: Path) -> Place:
    """Where the key at `path` stands; where it is left out, the section that lacks it."""
    node = find(root, path)
    return node.place if node is not None else place_of(root, path[:-1])


def put(section: Section, path: Sequence[str], value: Node) -> Section:
    """`section` with `value` at `path`; sections on the way are made where there are none.

    A text that stands where a section should is left alone: it is an error of its own.
    """
    key, *rest = path
    if rest:
        inner = section.entries.get(key, Nothing(section.place))
        if isinstance(inner, Nothing):
            inner = Section(inner.place, {})
        if not isinstance(inner, Section):
            return section
        value = put(inner, rest, value)
    return replace(section, entries={**section.entries, key: value})


def texts(node: Node, path: Path = ()) -> Iterator[tuple[Path, Text]]:
    """Every scalar under `node` with its path."""
    match node:
        case Text():
            yield path, node
        case Items(items=items):
            for index, item in enumerate(items):
                yield from texts(item, (*path, index))
        case Section(entries=entries):
            for key, value in entries.items():
                yield from texts(value, (*path, key))


def dotted(path: Path) -> str:
    """A path as people write it: `model.fallbacks[0].name`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


def label(place: Place, path: Path) -> str:
    """The key at `path` as its writer knows it: dotted, or the variable that supplied it and, for
    what is within its value, the way from there."""
    if not place.variable:
        return dotted(path)
    inner = dotted(path[place.variable.count("__") + 1 :])
    return f"{place.variable}{'.' if inner and inner[0] != '[' else ''}{inner}"
