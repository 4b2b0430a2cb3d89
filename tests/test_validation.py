"""Plain values are parsed into structs, or rejected with all their errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, field

from nanobot.validation import (
    Check,
    Checked,
    Fault,
    Invalid,
    InvalidValue,
    SecretStr,
    build,
    json_schema,
)


def _even(number: int) -> int:
    if number % 2:
        raise InvalidValue("must be even", "Add one.")
    return number


def _loud(text: str) -> str:
    if text != text.upper():
        raise ValueError(f"{text.strip()} is not loud")
    return text


class Part(Checked, frozen=True):
    name: Annotated[str, Meta(min_length=1)]
    key: SecretStr = SecretStr("")

    @classmethod
    def prepare(cls, given: object) -> object:
        return {"name": given} if isinstance(given, str) else given


class Whole(Checked, frozen=True):
    """A struct with a field of each kind."""

    count: Annotated[int, Meta(ge=1, le=9)] = 1
    seconds: Annotated[float, Meta(gt=0)] = 1.0
    on: bool = False
    mode: Literal["auto", "never"] = "auto"
    even: Annotated[int, Check(_even)] = 2
    loud: Annotated[str, Check(_loud)] = ""
    limit: int | None = None
    last: Annotated[int | None, Meta(ge=1)] = None
    words: tuple[str, ...] = ()
    few: Annotated[list[int], Meta(max_length=2)] = field(default_factory=list)
    parts: tuple[Part, ...] = ()
    by_name: Mapping[str, Part] = field(default_factory=dict)

    def faults(self, home: Path) -> Iterator[Fault]:
        if self.on and self.mode == "never":
            yield Fault(("mode",), "does not go with `on`")
        if self.count == 9:
            yield Fault(("count",), "is a lot", "", is_doubtful=True)


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ({}, Whole()),
        ({"count": "3", "seconds": "2.5", "on": "yes"}, Whole(count=3, seconds=2.5, on=True)),
        ({"count": 3.0, "seconds": 2, "on": False}, Whole(count=3, seconds=2.0)),
        ({"count": " 5.0 ", "limit": 10**400, "on": "Y"}, Whole(count=5, limit=10**400, on=True)),
        ({"limit": None, "last": None}, Whole()),
        ({"limit": "7", "count": 9}, Whole(limit=7, count=9)),
        ({"words": ["a", "b"], "few": [1, "2"]}, Whole(words=("a", "b"), few=[1, 2])),
        (
            {"parts": ["a", {"name": "b", "key": "k"}], "by_name": {"x": "c"}},
            Whole(parts=(Part("a"), Part("b", SecretStr("k"))), by_name={"x": Part("c")}),
        ),
    ],
)
def test_what_can_only_mean_one_thing_is_taken(given: object, made: Whole) -> None:
    assert build(Whole, given) == made


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("text", "must be a section with keys"),
        ({"count": "many"}, "count must be a whole number"),
        ({"count": 2.5}, "count must be a whole number"),
        ({"count": True}, "count must be a whole number"),
        ({"count": "9" * 5_000}, "count must be a whole number"),
        ({"count": 0}, "count must be at least 1"),
        ({"count": 10**400}, "count must be at most 9"),
        ({"last": 0}, "last must be at least 1"),
        ({"seconds": 0}, "seconds must be greater than 0"),
        ({"seconds": "inf"}, "seconds must be a finite number"),
        ({"on": "perhaps"}, "on must be true or false"),
        ({"mode": "alway"}, "mode must be 'auto' or 'never'"),
        ({"even": 3}, "even must be even"),
        ({"loud": "secret"}, "loud … is not loud"),
        ({"loud": " secret "}, "loud … is not loud"),
        ({"loud": "o"}, "loud o is not loud"),
        ({"loud": "lo"}, "loud … is not loud"),
        ({"words": "a"}, "words must be a list"),
        ({"words": ["a", 1]}, "words[1] must be text"),
        ({"few": [1, 2, 3]}, "few must be at most 2 items"),
        ({"parts": [{}]}, "parts[0].name is required"),
        ({"parts": [{"name": ""}]}, "parts[0].name must not be empty"),
        ({"by_name": {"x": {"name": "a", "kay": "b"}}}, "by_name.x.kay there is no such key"),
        ({"on": True, "mode": "never"}, "mode does not go with `on`"),
        (
            {"count": 0, "words": [1, 2], "mod": "auto"},
            "count must be at least 1; words[0] must be text; words[1] must be text; "
            "mod there is no such key",
        ),
    ],
)
def test_everything_that_is_wrong_is_said_and_where(given: object, said: str) -> None:
    with pytest.raises(Invalid) as refused:
        build(Whole, given)
    assert str(refused.value) == said


def test_a_wrong_key_or_choice_has_a_hint() -> None:
    with pytest.raises(Invalid) as refused:
        build(Whole, {"mode": "neverr", "cuont": 1})
    assert [fault.hint for fault in refused.value.faults] == [
        "Did you mean 'never'?",
        "Did you mean 'count'?",
    ]


def test_many_wrong_keys_are_told_without_looking_for_what_each_meant() -> None:
    with pytest.raises(Invalid) as refused:
        build(Whole, {f"count{number}": 1 for number in range(1_000)})
    faults = refused.value.faults
    assert len(faults) == 1_000
    assert 0 < sum(bool(fault.hint) for fault in faults) < 100


def test_a_secret_is_in_no_representation() -> None:
    part = build(Part, {"name": "a", "key": "canary"})
    assert part.key.get_secret_value() == "canary"
    assert "canary" not in f"{part!r} {part} {part.key} {build(Whole, {'parts': [part]})!r}"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from([*Whole.__struct_fields__, "name", "x"]), inner)
        ),
        max_leaves=12,
    )
)
def test_any_value_is_taken_or_refused(value: object) -> None:
    with suppress(Invalid):
        assert isinstance(build(Whole, value), Whole)


def test_the_schema_says_what_is_taken() -> None:
    schema = json_schema(Whole)
    properties: dict[str, Any] = schema["properties"]
    assert "required" not in schema
    assert properties["count"] == {"type": "integer", "minimum": 1, "maximum": 9, "default": 1}
    assert properties["seconds"]["exclusiveMinimum"] == 0
    assert properties["mode"] == {"type": "string", "enum": ["auto", "never"], "default": "auto"}
    assert properties["limit"] == {"type": "integer"}
    assert properties["few"]["maxItems"] == 2
    part = properties["parts"]["items"]
    assert part["required"] == ["name"]
    assert part["properties"]["key"]["format"] == "password"
    assert properties["by_name"]["additionalProperties"] == part
