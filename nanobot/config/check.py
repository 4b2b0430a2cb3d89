"""From a tree of texts to validated values; what pydantic finds becomes sentences for people.

The sentences say what a value must be and never what it is.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from nanobot.config.findings import Findings, nearest, suggestion
from nanobot.config.tree import Items, Path, Section, Text, dotted, find, label, place_of, plain
from nanobot.config.values import Unfit, secrets_in
from nanobot.config.variables import variable_for

M = TypeVar("M", bound=BaseModel)

_WHOLE = "must be a whole number"
_NUMBER = "must be a number"
_SECTION = "must be a section with keys"
_SENTENCES = {
    "int_parsing": _WHOLE,
    "int_type": _WHOLE,
    "int_from_float": _WHOLE,
    "int_parsing_size": "is too large a number",
    "float_parsing": _NUMBER,
    "float_type": _NUMBER,
    "finite_number": "must be a finite number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "string_type": "must be a text",
    "string_too_short": "must not be empty",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "model_type": _SECTION,
    "dict_type": _SECTION,
    "model_attributes_type": _SECTION,
    "missing": "is required",
}
_BOUNDS = {
    "greater_than": ("gt", "must be more than"),
    "greater_than_equal": ("ge", "must be at least"),
    "less_than": ("lt", "must be less than"),
    "less_than_equal": ("le", "must be at most"),
}


class Checker:
    """Checks sections of one configuration, noting problems at the lines where they stand."""

    def __init__(self, root: Section, findings: Findings) -> None:
        self._root = root
        self._findings = findings

    def section(self, path: Path) -> Section:
        """The section at `path`; empty where it is left out or, as a problem says, is none."""
        node = find(self._root, path)
        if isinstance(node, Section):
            return node
        if isinstance(node, Text | Items):
            hint = f"Write `{path[-1]}:` and beneath it, indented, its keys."
            self.problem(path, _SECTION, hint)
        return Section(place_of(self._root, path), {})

    def only(self, keys: Sequence[str]) -> Section:
        """The whole configuration less all but these of its sections."""
        return self._root.only(keys)

    def warn(self, path: Path, message: str, hint: str) -> None:
        """Note that the key at `path` should be mended though it works."""
        place = place_of(self._root, path)
        self._findings.warn(place, label(place, path), message, hint)

    def problem(self, path: Path, message: str, hint: str = "") -> None:
        """Note a problem with the key at `path`."""
        place = place_of(self._root, path)
        self._findings.problem(place, label(place, path), message, hint)

    def unknown(self, path: Path, known: Sequence[str]) -> None:
        """Note that the last step of `path` is no key of its section."""
        key = str(path[-1])
        place = place_of(self._root, path)
        near = nearest(key, known)
        if near and place.variable == variable_for([str(step) for step in path]):
            hint = f"Did you mean {variable_for([*map(str, path[:-1]), near])}?"
        else:
            hint = suggestion(key, known)
        self._findings.problem(place, label(place, path), "there is no such key", hint)

    def validate(
        self, model: type[M], section: Section, path: Path, also_known: Sequence[str] = ()
    ) -> M | None:
        """`section`, which stands at `path`, as a `model`; None where problems were found.

        `also_known` are keys of the section that belong to somebody else.
        """
        try:
            return model.model_validate(plain(section), extra="forbid")
        except ValidationError as error:
            details = error.errors(include_url=False)
        for detail in details:
            where = (*path, *detail["loc"])
            if detail["type"] == "extra_forbidden":
                known = [*_keys(model, detail["loc"][:-1])]
                self.unknown(where, [*known, *(also_known if len(detail["loc"]) == 1 else ())])
            else:
                self.problem(where, *self._sentence(detail, where))
        return None

    def _sentence(self, detail: ErrorDetails, path: Path) -> tuple[str, str]:
        kind, context = detail["type"], detail.get("ctx", {})
        if kind == "literal_error":
            return self._choice(context["expected"], path)
        if kind in _BOUNDS:
            name, words = _BOUNDS[kind]
            return f"{words} {_number(context[name])}", ""
        if kind == "value_error" and isinstance(reason := context.get("error"), Unfit):
            return str(reason), reason.hint
        if kind in ("tuple_type", "list_type"):
            return _SENTENCES[kind], "Write it as [first, second], or one a line after '- '."
        return _SENTENCES.get(kind) or self._foreign(detail["msg"], path), ""

    def _choice(self, expected: str, path: Path) -> tuple[str, str]:
        choices = expected.replace("'", "").replace(" or ", ", ").split(", ")
        node = find(self._root, path)
        near = nearest(node.value, choices) if isinstance(node, Text) else ""
        hint = f"Did you mean '{near}'?" if near else ""
        return f"must be one of {', '.join(choices)}", hint

    def _foreign(self, message: str, path: Path) -> str:
        """What an adapter's own check says, less the value should it repeat that."""
        node = find(self._root, path)
        if isinstance(node, Text) and node.value:
            message = message.replace(node.value, "…")
        message = message.removeprefix("Value error, ").removeprefix("Assertion failed, ")
        return message[:1].lower() + message[1:]

    def warn_of_literal_secrets(self, path: Path, value: BaseModel) -> None:
        """Warn of secrets of `value`, the section at `path`, that are written out in the file;
        for a file that others may read."""
        for key, _ in secrets_in(value, path):
            node = find(self._root, key)
            if isinstance(node, Text) and node.literal and node.value:
                self._findings.warn(
                    node.place,
                    dotted(key),
                    "is written out in a file that other users can read",
                    f"Make it yours: `chmod 600 {shlex.quote(node.place.file)}`.",
                )


def _number(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else f"{value:,}"


def _keys(model: type[BaseModel], loc: Sequence[str | int]) -> Iterable[str]:
    """The keys of the model that `loc`, as pydantic gives it, leads to."""
    for step in loc:
        if isinstance(step, str) and step in model.model_fields:
            model = _model_in(model.model_fields[step].annotation) or model
    return model.model_fields


def _model_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_model_in(argument) for argument in get_args(annotation))
    return next((model for model in found if model), None)
