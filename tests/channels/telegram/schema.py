"""The schema of the Bot API, as a source of updates."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random

from tests.channels.telegram.update_samples import ME, Raw


class Schema:
    """Makes random objects of the Bot API by its schema."""

    def __init__(self, path: Path) -> None:
        items = json.loads(path.read_text("utf-8"))["items"]
        self._types = {child["name"]: child for item in items for child in item["children"]}

    def make(self, name: str, rnd: Random, depth: int) -> object:
        """Return an object of a type, with optional fields down to `depth`."""
        if name.startswith("Array of "):
            inner = name.removeprefix("Array of ")
            return [self.make(inner, rnd, depth) for _ in range(rnd.randint(0, 2))]
        if name in _SIMPLE:
            return _SIMPLE[name](rnd)
        found = self._types[name]
        kinds = [line[3:] for line in found["description"].split("\n") if line.startswith(" - ")]
        if not found["annotations"] and kinds:
            return self.make(rnd.choice(kinds), rnd, depth)
        return self._object(found["annotations"], rnd, depth)

    def _object(self, fields: Sequence[Mapping[str, str]], rnd: Random, depth: int) -> Raw:
        optional = [field for field in fields if not field["required"]]
        chosen = rnd.sample(optional, rnd.randint(0, min(3, len(optional)))) if depth else []
        wanted = [field for field in fields if field["required"]] + chosen
        return {field["name"]: self._value(field, rnd, depth - bool(depth)) for field in wanted}

    def _value(self, field: Mapping[str, str], rnd: Random, depth: int) -> object:
        said = re.search(r"(?:always|must be) ['“\"]?(\w+)", field["description"])
        if field["type"] == "String" and field["name"] in {"type", "status", "source"}:
            options = re.findall(r"'(\w+)'", field["description"])
            return said[1] if said else rnd.choice(options or ["unheard"])
        if field["type"] == "Integer" and "id" in field["name"].split("_"):
            return rnd.choice((1, ME.id, -1001, rnd.randint(-(2**52), 2**52)))
        return self.make(field["type"], rnd, depth)


_SIMPLE: dict[str, Callable[[Random], object]] = {
    "String": lambda rnd: "".join(rnd.choices("a@[]/ \n\U0001f642", k=rnd.randint(0, 9))),
    "Integer": lambda rnd: rnd.choice((0, 1, 5, rnd.randint(1, 2**31 - 1))),
    "Float": lambda rnd: rnd.uniform(-90, 90),
    "Boolean": lambda rnd: rnd.random() < 0.5,
    "True": lambda _: True,
    "RichText": lambda rnd: rnd.choice(("a", ["a", {"type": "bold", "text": "b"}], [])),
    "InputFile": lambda _: "f",
}
