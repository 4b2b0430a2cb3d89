"""Reads plain values from YAML or JSON, settings and tool arguments, into msgspec structs.

`msgspec.convert` stops at the first mistake and words it for programmers. `build` reports all of
them, each with its path and the valid values. It never repeats the value, which may be a secret.
Numbers and booleans may be given as text, as in YAML scalars and variables.

A field may be a text, number, bool, `SecretStr`, `Literal`, one of these or None, a tuple, list or
mapping of them, or another `Checked`. `Annotated` adds limits (`msgspec.Meta`, which the JSON
Schema shows as well) and checks (`Check`)."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from operator import attrgetter
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints
from urllib.parse import SplitResult, urlsplit

from msgspec import NODEFAULT, Meta, Struct, ValidationError, convert, defstruct
from msgspec.structs import FieldInfo, asdict, fields, replace

from nanobot.errors import NanobotError

KeyPath = tuple[str | int, ...]
C = TypeVar("C", bound="Checked")


class SecretStr:
    """A text that no representation shows."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def get_secret_value(self) -> str:
        return self._value

    def __len__(self) -> int:
        return len(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecretStr) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return f"SecretStr({'**********' if self._value else ''!r})"

    __str__ = __repr__


class InvalidValue(ValueError):
    """A value that a field rejects. The texts never repeat it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def address_parts(url: str, *schemes: str) -> SplitResult:
    """Return the parts of an address with one of these schemes. Raises `InvalidValue` for any other
    text."""
    with suppress(ValueError):
        parts = urlsplit(url)
        usable = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
        if usable and not any(character.isspace() for character in url):
            return parts
    wanted = " or ".join(f"{scheme}://" for scheme in schemes)
    raise InvalidValue(f"must be a URL that begins with {wanted}")


def check_client_proxy(secret: SecretStr) -> SecretStr:
    """Return the proxy address for a platform's client, which may be empty. Raises
    `InvalidValue`."""
    if proxy := secret.get_secret_value().strip():
        address_parts(proxy, "http", "https", "socks5", "socks5h")
    return SecretStr(proxy)


class Check(Struct, frozen=True):
    """A check in `Annotated`, which returns the final value once the type is right. It raises
    `ValueError` for invalid ones, or better `InvalidValue`, which has a hint."""

    run: Callable[[Any], Any]


class Fault(Struct, frozen=True):
    """A mistake. `key` is the path relative to the checked value, and `given` is the value there.
    If it `is_doubtful`, the value can be used."""

    key: KeyPath
    message: str
    hint: str = ""
    is_doubtful: bool = False
    given: object = None


class Invalid(ValueError):
    """Unusable values, with all their faults."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__(
            "; ".join(f"{format_key(one.key)} {one.message}".strip() for one in faults)
        )
        self.faults = tuple(faults)


class Checked(Struct, frozen=True, forbid_unknown_fields=True):
    """Base class for the results of `build`. Frozen. Unknown keys are rejected."""

    @classmethod
    def prepare(cls, given: object) -> object:
        """Return the input for the fields. Override it to allow shorter notations."""
        return given

    def faults(self, home: Path) -> Iterable[Fault]:
        """Return the conflicts between valid keys. `home` is nanobot's home folder."""
        return ()


def build(model: type[C], given: object, home: Path = Path()) -> C:
    """Read `given` as a `model`. Raises `Invalid`."""
    made, faults = examine(model, given, home)
    serious = [fault for fault in faults if not fault.is_doubtful]
    if serious or made is None:
        raise Invalid(serious)
    return made


def examine(
    model: type[C], given: object, home: Path, also_known: Sequence[str] = ()
) -> tuple[C | None, Sequence[Fault]]:
    """Read `given` as a `model`. Return it, or None if it is invalid, and all faults, including
    doubtful ones. `also_known` are further keys to suggest for a wrong one."""
    reader = _Reader(home, also_known)
    made = reader.value(model, given, ())
    return (made if isinstance(made, model) else None), reader.faults


@cache
def fields_of(model: type[Checked]) -> Mapping[str, FieldInfo]:
    """Return the fields of a model by name."""
    return {field.name: field for field in fields(model)}


def keyword_arguments(
    function: Callable[..., object], given: Mapping[str, object]
) -> dict[str, object]:
    """Convert an operation's JSON arguments to the types of its parameters. Unknown ones are
    dropped. Raises `NanobotError`."""
    try:
        return asdict(convert(given, _struct_of(function)))
    except ValidationError as error:
        raise NanobotError(f"the operation's arguments are invalid: {error}") from None


@cache
def _struct_of(function: Callable[..., object]) -> type[Struct]:
    from inspect import signature  # not needed at the start

    hints = get_type_hints(function, include_extras=True)
    parameters = signature(function).parameters.values()
    fields = [
        (one.name, hints[one.name])
        if one.default is one.empty
        else (one.name, hints[one.name], one.default)
        for one in parameters
    ]
    return defstruct("Arguments", fields, kw_only=True)


def format_key(path: KeyPath) -> str:
    """Return a path as people write it: `model.fallbacks[0].name`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the known word that was probably meant, or an empty text."""
    from difflib import get_close_matches

    spelled = {candidate.lower(): candidate for candidate in known}
    found = get_close_matches(word.lower(), spelled, n=1, cutoff=0.6)
    return spelled[found[0]] if found else ""


def suggestion(word: str, known: Sequence[str]) -> str:
    """Return a sentence for an unknown word, with the nearest known word or all of them."""
    near = nearest(word, known)
    return f"Did you mean '{near}'?" if near else f"Valid keys: {', '.join(known)}."


_WRONG: Any = object()
"""Replaces a value with a reported fault."""

_NO_SECTION = "must be a section with keys"
_MOST_HINTS = 20
"""Most suggestions. Each takes time, and a model may send any number of wrong keys."""
_TRUTH = dict.fromkeys(("true", "t", "yes", "y", "on", "1"), True) | dict.fromkeys(
    ("false", "f", "no", "n", "off", "0"), False
)


class _Reader:
    """Reads one value and collects the faults in it."""

    def __init__(self, home: Path, also_known: Sequence[str] = ()) -> None:
        self.home = home
        self.also_known: Mapping[KeyPath, Sequence[str]] = {(): also_known}
        self.faults: list[Fault] = []

    def value(self, kind: Any, given: object, path: KeyPath) -> Any:
        """Return `given` as a `kind`, or `_WRONG` after reporting a fault."""
        read = _BY_ORIGIN.get(get_origin(kind), _Reader._plain)
        try:
            return read(self, kind, given, path)
        except InvalidValue as error:
            return self._wrong(path, given, str(error), error.hint)
        except ValueError as error:  # an adapter's check may repeat the value
            secret, text = given.strip() if isinstance(given, str) else "", str(error)
            if len(secret) > 1:  # whole words only, as others contain its letters
                text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "…", text)
            return self._wrong(path, given, text[:1].lower() + text[1:])

    def _struct(self, model: type[Checked], given: object, path: KeyPath) -> Any:
        before, known = len(self.faults), fields_of(model)
        given = model.prepare(given)
        if not isinstance(given, Mapping):
            raise InvalidValue(_NO_SECTION)
        values = {}
        for name, field in known.items():
            if name in given:
                values[name] = self.value(field.type, given[name], (*path, name))
            elif field.required:
                self._wrong((*path, name), None, "is required")
        for key in given:
            if key not in known:
                meant = [*known, *self.also_known.get(path, ())]
                hint = suggestion(str(key), meant) if len(self.faults) < _MOST_HINTS else ""
                self._wrong((*path, key), given[key], "there is no such key", hint)
        if not all(map(attrgetter("is_doubtful"), self.faults[before:])):
            return _WRONG
        made = model(**values)
        for fault in made.faults(self.home):
            self.faults.append(replace(fault, key=(*path, *fault.key)))
        return made

    def _wrong(self, path: KeyPath, given: object, message: str, hint: str = "") -> Any:
        self.faults.append(Fault(path, message, hint, given=given))
        return _WRONG

    def _check(self, kind: Any, given: object, path: KeyPath) -> Any:
        value = self.value(kind.__origin__, given, path)
        for extra in kind.__metadata__ if value is not _WRONG and value is not None else ():
            if isinstance(extra, Check):
                value = extra.run(value)
            elif isinstance(extra, Meta):
                _limit(extra, value)
        return value

    def _choice(self, kind: Any, given: object, path: KeyPath) -> Any:
        choices = get_args(kind)
        if given in choices:
            return given
        *most, last = map(repr, filter(None, choices))  # an empty choice means unset
        near = nearest(given, choices) if given and isinstance(given, str) else ""
        hint = f"Did you mean '{near}'?" if near else ""
        raise InvalidValue(f"must be {', '.join(most)} or {last}", hint)

    def _optional(self, kind: Any, given: object, path: KeyPath) -> Any:
        return None if given is None else self.value(_not_none(kind), given, path)

    def _items(self, kind: Any, given: object, path: KeyPath) -> Any:
        if not isinstance(given, list | tuple):
            hint = "Use [first, second], or one item per line after '- '."
            raise InvalidValue("must be a list", hint)
        inner = get_args(kind)[0]
        items = [self.value(inner, item, (*path, index)) for index, item in enumerate(given)]
        wrong = any(item is _WRONG for item in items)
        return _WRONG if wrong else get_origin(kind)(items)

    def _entries(self, kind: Any, given: object, path: KeyPath) -> Any:
        if not isinstance(given, Mapping):
            raise InvalidValue(_NO_SECTION)
        of_keys, of_values = get_args(kind)
        entries = {
            self.value(of_keys, key, (*path, key)): self.value(of_values, value, (*path, key))
            for key, value in given.items()
        }
        return _WRONG if any(one is _WRONG for one in (*entries, *entries.values())) else entries

    def _plain(self, kind: Any, given: object, path: KeyPath) -> Any:
        if kind is Any or (kind not in (str, bool, int, float) and isinstance(given, kind)):
            return given  # parts may be built already
        if issubclass(kind, Checked):
            return self._struct(kind, given, path)
        if kind in (int, float):
            return _number(kind, given)
        if kind is bool:
            if (truth := _TRUTH.get(str(given).strip().lower())) is None:
                raise InvalidValue("must be true or false")
            return truth
        if not isinstance(given, str):
            raise InvalidValue("must be text")
        return kind(given)


_BY_ORIGIN: Mapping[Any, Callable[[_Reader, Any, object, KeyPath], Any]] = {
    Annotated: _Reader._check,
    Literal: _Reader._choice,
    Union: _Reader._optional,
    UnionType: _Reader._optional,
    tuple: _Reader._items,
    list: _Reader._items,
    Mapping: _Reader._entries,
    dict: _Reader._entries,
}


_NUMBERS = {int: "must be a whole number", float: "must be a number"}


def _number(kind: type[int] | type[float], given: object) -> int | float:
    number: int | float | None = None
    if isinstance(given, str) and kind is int:
        given = given.strip().removesuffix(".0")  # a whole number in JSON
    if isinstance(given, str | int | float) and not isinstance(given, bool):  # a bool is an int
        with suppress(ValueError, OverflowError):
            number = kind(given)
    if number is None or (isinstance(given, float) and number != given):  # a fraction
        raise InvalidValue(_NUMBERS[kind])
    if isinstance(number, float) and not math.isfinite(number):
        raise InvalidValue("must be a finite number")
    return number


_LIMITS: Mapping[str, tuple[Callable[[Any, Any], bool], str]] = {
    "ge": (operator.ge, "must be at least {}"),
    "gt": (operator.gt, "must be greater than {}"),
    "le": (operator.le, "must be at most {}"),
    "min_length": (lambda value, least: len(value) >= least, "must have {} {unit}"),
    "max_length": (lambda value, most: len(value) <= most, "must be at most {:,} {unit}"),
}
"""Test of each limit of `msgspec.Meta`, and its error message."""


def _limit(limit: Meta, value: Any) -> None:
    """Raise `InvalidValue` if a value exceeds a limit."""
    for name, (holds, wanted) in _LIMITS.items():
        bound = getattr(limit, name)
        if bound is not None and not holds(value, bound):
            if name == "min_length" and bound == 1:
                raise InvalidValue("must not be empty")
            unit = "characters" if isinstance(value, str) else "items"
            raise InvalidValue(wanted.format(bound, unit=unit))


def _not_none(kind: Any) -> Any:
    """Return the type that may also be None."""
    (inner,) = (one for one in get_args(kind) if one is not NoneType)
    return inner


Meanings = Callable[[type[Checked]], Mapping[str, str]]


def json_schema(kind: Any, meanings: Meanings = lambda _: {}) -> dict[str, Any]:
    """Return the self-contained JSON Schema of a field's type or a model.

    Key descriptions come from `Meta(description=…)`, or from `meanings` of the model. A key that
    may be None is optional."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        made = json_schema(kind.__origin__, meanings)
        for one in kind.__metadata__:
            if isinstance(one, Meta):
                made |= _limits(one, made)
        return made
    if origin in (Union, UnionType):
        return json_schema(_not_none(kind), meanings)
    if origin is Literal:
        return {"type": "string", "enum": list(arguments)}
    if origin in (tuple, list):
        return {"type": "array", "items": json_schema(arguments[0], meanings)}
    if origin is not None:
        return {"type": "object", "additionalProperties": json_schema(arguments[1], meanings)}
    return _schema_of_model(kind, meanings) if issubclass(kind, Checked) else dict(_TYPES[kind])


def _schema_of_model(model: type[Checked], meanings: Meanings) -> dict[str, Any]:
    texts = meanings(model)
    properties, required = {}, []
    for name, field in fields_of(model).items():
        made = json_schema(field.type, meanings)
        if name in texts:
            made["description"] = texts[name]
        if field.required:
            required.append(name)
        else:
            has_factory = field.default_factory is not NODEFAULT
            default = field.default_factory() if has_factory else field.default
            if isinstance(default, SecretStr):
                default = default.get_secret_value()
            if default is not None and not isinstance(default, Checked):
                made["default"] = list(default) if isinstance(default, tuple) else default
        properties[name] = made
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return {**schema, "required": required} if required else schema


def _limits(limit: Meta, kind: Mapping[str, Any]) -> dict[str, Any]:
    """Return the additions of `limit` to the schema of a `kind`."""
    sized = "Items" if kind.get("type") == "array" else "Length"
    named = {
        "description": limit.description,
        "minimum": limit.ge,
        "exclusiveMinimum": limit.gt,
        "maximum": limit.le,
        f"min{sized}": limit.min_length,
        f"max{sized}": limit.max_length,
    }
    return {key: value for key, value in named.items() if value is not None}


_TYPES: Mapping[Any, Mapping[str, Any]] = {
    Any: {},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    SecretStr: {"type": "string", "format": "password", "writeOnly": True},
}
