"""Servers get conversations that follow their rules, after any events."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.messages import TURN_STOPPED, ProviderData, ToolCall
from nanobot.providers.dialect import CallIds, Dialect
from nanobot.providers.dialogue import CONTINUED, NO_RESULT, NOTED, Dialogue
from nanobot.providers.port import (
    Image,
    PromptMessage,
    assistant_message,
    system_message,
    tool_message,
    user_message,
)

FREE = Dialect()
STRICT = Dialect(strict_roles=True)
PLAIN = Dialect(fills_empty=False)
HERE = "http://here m"
SYSTEM = system_message("Be kind.")


def wire_messages(said: Sequence[PromptMessage], dialect: Dialect, source: str) -> list[bytes]:
    return Dialogue().wire_messages(said, dialect, source)


def call(id: str, arguments: str = "{}") -> ToolCall:
    return ToolCall(id, "look", arguments)


def calls(*ids: str, text: str = "", data: ProviderData | None = None) -> PromptMessage:
    return assistant_message(text, tuple(map(call, ids)), data)


def send(*messages: PromptMessage, dialect: Dialect = STRICT) -> list[dict[str, Any]]:
    return [json.loads(wire) for wire in wire_messages(messages, dialect, HERE)]


def show(*messages: PromptMessage, dialect: Dialect = STRICT) -> list[tuple[str, object]]:
    return [(one["role"], one["content"]) for one in send(*messages, dialect=dialect)]


def test_a_valid_conversation_is_sent_byte_for_byte() -> None:
    said = [SYSTEM, user_message("Hi"), calls("a1"), tool_message("a1", "seen"), user_message("")]
    assert wire_messages(said, PLAIN, HERE) == [one.wire for one in said]


def test_in_strict_form_an_assistant_message_stands_between_a_result_and_a_person() -> None:
    steered = (user_message("Hi"), calls("a1"), tool_message("a1", "seen"), user_message("Stop"))
    assert show(*steered)[-2:] == [("assistant", NOTED), ("user", "Stop")]
    assert show(*steered, dialect=FREE)[-2:] == [("tool", "seen"), ("user", "Stop")]


def test_in_strict_form_a_stopped_turn_has_an_answer_of_its_own() -> None:
    said = (user_message("A story!"), user_message(TURN_STOPPED), user_message("Hi"))
    assert show(*said) == [
        ("user", "A story!"),
        ("assistant", "(stopped)"),
        ("user", "Hi"),
    ]
    assert show(*said, dialect=FREE)[1] == ("user", TURN_STOPPED)


def test_in_strict_form_a_turn_that_was_stopped_at_its_tools_has_one_answer() -> None:
    said = (user_message("Hi"), calls("a1"), tool_message("a1", "seen"), user_message(TURN_STOPPED))
    ending = [("tool", "seen"), ("assistant", "(stopped)"), ("user", "Well?")]
    assert show(*said, user_message("Well?"))[-3:] == ending


def test_in_strict_form_messages_in_a_row_become_one() -> None:
    image = Image("aGk=", "image/png")
    said = [SYSTEM, user_message("one"), user_message("two", (image,)), assistant_message("a")]
    said += [assistant_message("b"), user_message("three")]
    (_, first, second, third) = send(*said)
    assert [part["type"] for part in first["content"]] == ["text", "image_url"]
    assert first["content"][0]["text"] == "one\n\ntwo"
    assert (second["content"], third["content"]) == ("a\n\nb", "three")


def test_each_call_gets_one_result_right_behind_it_in_order() -> None:
    said = [user_message("Hi"), calls("a", "b", "c"), tool_message("c", "C"), user_message("well?")]
    said += [tool_message("a", "A"), tool_message("a", "again"), tool_message("nobody", "x")]
    shown = show(*said, assistant_message("done"), tool_message("b", "too late"), dialect=FREE)
    assert shown[2:] == [
        ("tool", "A"),
        ("tool", NO_RESULT),
        ("tool", "C"),
        ("user", "well?"),
        ("assistant", "done"),
    ]


def test_a_conversation_begins_with_one_system_message_and_a_user_message() -> None:
    said = [assistant_message("Hello."), SYSTEM, user_message("Hi"), system_message("Be brief.")]
    expected = [("system", "Be kind.\n\nBe brief."), ("user", CONTINUED), ("assistant", "Hello.")]
    assert show(*said) == [*expected, ("user", "Hi")]


def test_without_a_system_role_its_text_heads_the_first_user_message() -> None:
    dialect = Dialect(system_role=False)
    assert show(SYSTEM, user_message("Hi"), dialect=dialect) == [("user", "Be kind.\n\nHi")]


def test_no_message_is_empty_for_servers_that_refuse_that() -> None:
    said = [
        user_message(" "),
        assistant_message(""),
        user_message(""),
        calls("a"),
        tool_message("a", ""),
    ]
    assert all(one["content"] for one in send(*said) if not one.get("tool_calls"))
    assert send(*said)[3]["content"] == "", "templates trip over null"


def test_arguments_that_other_programs_stored_are_sent_as_an_object() -> None:
    stored = assistant_message("", (call("a", '{"path": "x'), call("b", '{"path":"x"}')))
    (_, asked, *_) = send(user_message("Hi"), stored)
    written = [one["function"]["arguments"] for one in asked["tool_calls"]]
    assert written == ["{}", '{"path":"x"}']


@pytest.mark.parametrize("source", [HERE, "http://elsewhere m"])
def test_only_the_server_that_made_a_call_gets_its_id_and_its_fields_back(source: str) -> None:
    details = [{"type": "reasoning.encrypted", "data": "x", "id": "call_own"}]
    data = ProviderData(source, ("call_own",), {"reasoning_details": details}, ({},))
    messages = send(user_message("Hi"), calls("abc", data=data), tool_message("abc", "seen"))
    expected = "call_own" if source == HERE else "abc"
    assert messages[1]["tool_calls"][0]["id"] == messages[2]["tool_call_id"] == expected
    assert messages[1].get("reasoning_details") == (details if source == HERE else None)


def test_kimi_counts_calls_through_the_conversation() -> None:
    said = [user_message("Hi"), calls("a", "b"), tool_message("a", "1"), tool_message("b", "2")]
    said += [calls("c"), tool_message("c", "3")]
    messages = send(*said, dialect=Dialect(call_ids="kimi"))
    given = [one["tool_call_id"] for one in messages if one["role"] == "tool"]
    assert given == ["functions.look:0", "functions.look:1", "functions.look:2"]


def test_ids_that_other_programs_stored_become_short_and_unique() -> None:
    long = "call_" + "x" * 60
    said = [
        user_message("Hi"),
        calls(long, "a b"),
        tool_message(long, "1"),
        tool_message("a b", "2"),
    ]
    said += [calls("same"), tool_message("same", "3"), calls("same"), tool_message("same", "4")]
    messages = send(*said)
    asked = [one["id"] for message in messages for one in message.get("tool_calls", ())]
    answered = [one["tool_call_id"] for one in messages if one["role"] == "tool"]
    assert asked == answered
    assert len(set(asked)) == 4
    assert all(len(one) <= 40 for one in asked)


TEXTS = st.sampled_from(["", " ", "yes", "a longer text\nof two lines"])
IDS = st.sampled_from(["a", "b", "c", "d e", "x" * 50])
ARGUMENTS = st.sampled_from(["{}", '{"path":"x"}', '{"path":', "[]", "null", '""'])
DATA = st.none() | st.builds(
    ProviderData,
    st.sampled_from([HERE, "elsewhere"]),
    st.lists(st.sampled_from(["", "own", "functions.look:0"]), max_size=3).map(tuple),
    st.just({"reasoning_content": "hm"}),
)
MESSAGES = st.lists(
    st.one_of(
        TEXTS.map(user_message),
        TEXTS.map(assistant_message),
        TEXTS.map(system_message),
        st.builds(tool_message, IDS, TEXTS),
        st.builds(user_message, TEXTS, st.just((Image("aGk=", "image/png"),))),
        st.builds(
            assistant_message,
            TEXTS,
            st.lists(st.builds(call, IDS, ARGUMENTS), min_size=1, max_size=3).map(tuple),
            DATA,
        ),
    ),
    max_size=9,
)
DIALECTS = st.builds(
    Dialect,
    strict_roles=st.booleans(),
    system_role=st.booleans(),
    call_ids=st.sampled_from(["any", "nine", "kimi"]),
    reasoning_content=st.booleans(),
    reads_reasoning=st.booleans(),
    signatures=st.booleans(),
)


@given(said=MESSAGES, dialect=DIALECTS)
def test_any_conversation_keeps_the_rules_when_it_is_sent(
    said: list[PromptMessage], dialect: Dialect
) -> None:
    messages = send(*said, dialect=dialect)
    roles = [one["role"] for one in messages]
    assert "system" not in roles[1:]
    assert [role for role in roles if role != "system"][:1] in ([], ["user"])
    waiting: list[str] = []
    seen: set[str] = set()
    for one in messages:
        if one["role"] == "tool":
            assert one["tool_call_id"] == waiting.pop(0)
        else:
            assert not waiting
        for asked in one.get("tool_calls", ()):
            assert isinstance(json.loads(asked["function"]["arguments"]), dict)
            assert asked["id"] not in seen
            seen.add(asked["id"])
            waiting.append(asked["id"])
        assert one.get("tool_calls") or one["content"]
    assert not waiting
    if dialect.strict_roles:
        spoken = [role for role in roles if role != "system"]
        pairs = set(pairwise(spoken))
        assert not {("user", "user"), ("assistant", "assistant"), ("tool", "user")} & pairs


@given(said=MESSAGES, dialects=st.lists(DIALECTS, min_size=1, max_size=2))
def test_what_is_sent_does_not_depend_on_what_was_sent_before(
    said: list[PromptMessage], dialects: list[Dialect]
) -> None:
    dialogue = Dialogue()
    for end in range(len(said) + 1):
        for dialect in dialects:
            told = dialogue.wire_messages(said[:end], dialect, HERE)
            assert told == wire_messages(said[:end], dialect, HERE)


GROUPS = st.lists(
    st.one_of(
        TEXTS.map(lambda text: [user_message(text)]),
        TEXTS.map(lambda text: [assistant_message(text)]),
        st.builds(
            lambda text, data: [
                calls("a", "b", text=text, data=data),
                tool_message("a", text),
                tool_message("b", "seen"),
            ],
            TEXTS,
            DATA,
        ),
    ),
    min_size=1,
    max_size=8,
)


@given(groups=GROUPS, more=GROUPS, dialect=DIALECTS)
def test_a_longer_conversation_begins_with_the_bytes_of_its_beginning(
    groups: list[list[PromptMessage]], more: list[list[PromptMessage]], dialect: Dialect
) -> None:
    said = [SYSTEM, *(one for group in groups for one in group)]
    longer = [*said, *(one for group in more for one in group)]
    short, long = (b",".join(wire_messages(one, dialect, HERE)) for one in (said, longer))
    last = wire_messages(said, dialect, HERE)[-1]
    kept = len(short) - len(last)
    assert long[:kept] == short[:kept]
    text = json.loads(last)["content"]
    if isinstance(text, str) and not json.loads(last).get("tool_calls"):
        assert json.dumps(text)[:-1].encode() in long[kept:]


@pytest.mark.parametrize("name", ["", "a\nb", "two words", "n" * 80])
@pytest.mark.parametrize("form", ["any", "nine", "kimi"])
def test_names_that_other_programs_stored_are_sent_as_servers_take_them(
    name: str, form: CallIds
) -> None:
    """An id of Kimi's form contains the name."""
    called = assistant_message("", (ToolCall("a1", name, "{}"),))
    said = (user_message("Hi"), called, tool_message("a1", "seen"))
    (_, answer, result) = send(*said, dialect=Dialect(call_ids=form))
    (call,) = answer["tool_calls"]
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", call["function"]["name"])
    assert result["tool_call_id"] == call["id"]


def test_a_conversation_that_slides_for_ever_keeps_few_forms_of_its_messages() -> None:
    kimi, dialogue = Dialect(call_ids="kimi"), Dialogue()
    said: list[PromptMessage] = []
    for number in range(30):
        said += [user_message("Hi"), calls(f"a{number}"), tool_message(f"a{number}", "seen")]
    for start in range(0, len(said), 3):
        dialogue.wire_messages(said[start:], kimi, HERE)
    assert max(len(one.forms) for one in said) < 10
