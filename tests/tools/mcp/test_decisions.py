"""The pure parts: names, descriptions, listings."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from nanobot.tools.mcp.values import (
    MOST_DESCRIPTION,
    MOST_SCHEMA,
    MOST_TEXT,
    MOST_TOOLS,
    McpServer,
    ToolDescription,
    ToolListing,
    build_description,
    fit_budget,
    keep_usable,
    name_of_tool,
)


@given(st.text(max_size=20), st.text(max_size=70))
def test_names_are_ones_that_apis_take(server: str, tool: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name_of_tool(server, tool))


def test_long_names_stay_apart() -> None:
    assert name_of_tool("a", "read.file") == "a__read_file"
    assert name_of_tool("a", "x" * 70) != name_of_tool("a", "x" * 71)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=25)
@given(st.text(), st.dictionaries(st.text(), JSON, max_size=5))
def test_a_card_is_bounded_and_a_usable_schema_whatever_the_server_sent(
    description: str, schema: dict[str, object]
) -> None:
    made = build_description("tool", description * 50, schema, read_only=False)
    assert len(made.description) <= MOST_DESCRIPTION
    assert len(made.schema) <= MOST_SCHEMA
    assert made.parameters()["type"] == "object"
    assert isinstance(made.parameters()["properties"], dict)


def test_what_is_hidden_from_people_is_written_out() -> None:
    schema = {"properties": {"x": {"description": "fine\u202e\U000e0041"}}}
    made = build_description("tool", "Reads.\u200b\U000e0049", schema, read_only=False)
    assert made.description == "Reads.\\u200b\\U000e0049"
    assert "\\u202e\\U000e0041" in made.parameters()["properties"]["x"]["description"]


def test_what_apis_refuse_at_the_top_of_a_schema_is_left_out() -> None:
    schema = {"$schema": "x", "anyOf": [{}], "required": ["a"], "properties": {"a": {}}}
    assert build_description("tool", "", schema, read_only=False).parameters() == {
        "type": "object", "required": ["a"], "properties": {"a": {}},
    }  # fmt: skip


def test_a_deep_or_endless_schema_becomes_one_that_takes_anything() -> None:
    deep: dict[str, object] = {}
    for _ in range(5_000):
        deep = {"properties": deep}
    for schema in (deep, {"properties": {f"p{n}": {"type": "string"} for n in range(5_000)}}):
        made = build_description("tool", "", schema, read_only=False)
        assert made.parameters() == {"type": "object", "properties": {}}


def test_a_server_cannot_fill_the_prompt() -> None:
    many = keep_usable(ToolDescription(f"t{n:04}", "", "{}") for n in range(1_000))
    assert len(fit_budget(many)) == MOST_TOOLS
    assert [one.name for one in fit_budget(many, ["t0200"])] == ["t0200"]
    long = [ToolDescription(f"t{n}", "x" * 1_500, "y" * 8_000) for n in range(64)]
    assert sum(len(one.description) + len(one.schema) for one in fit_budget(long)) <= MOST_TEXT


def test_only_what_was_accepted_as_it_is_is_offered() -> None:
    a, b, changed = (
        ToolDescription("a", "one", "{}"),
        ToolDescription("b", "two", "{}"),
        ToolDescription("a", "evil", "{}"),
    )
    new = ToolListing("id").update([a, b])
    assert (new.available, new.waiting) == ((), (a, b))
    first = new.accept()
    assert (first.available, first.waiting, first.digest) == ((a, b), (), "")
    for later in (
        [changed, b],
        [ToolDescription("a", "one", '{"x":1}'), b],
        [a, b, ToolDescription("c", "", "{}")],
    ):
        seen = first.update(later)
        assert len(seen.waiting) == 1
        assert b in seen.available
        assert not set(seen.available) & set(seen.waiting)
        assert set(seen.accept().available) == set(later)
    gone = first.update([b])
    assert gone.available == (b,)
    assert gone.update([changed, b]).waiting == (changed,)  # leaving and coming back gains nothing
    assert (
        first.update([changed]).digest
        != first.update([ToolDescription("a", "more evil", "{}")]).digest
    )


def test_only_an_address_that_is_no_public_name_is_the_owners_exception() -> None:
    urls = {
        "http://127.0.0.1:8000/mcp": "127.0.0.1:8000",
        "http://localhost/mcp": "localhost:80",
        "https://[::1]:9/mcp": "[::1]:9",
        "https://mcp.example.com/mcp": "",
        "http://nas.lan:8080/mcp": "",
    }
    assert {url: McpServer("x", url=url).literal_address for url in urls} == urls


def test_another_program_under_the_same_name_is_another_server() -> None:
    one, other = McpServer("x", "npx", ("a b",)), McpServer("x", "npx", ("a", "b"))
    assert one.identity != other.identity
