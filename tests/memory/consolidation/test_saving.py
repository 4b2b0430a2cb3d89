"""Arguments of save_memory, in all the shapes that models give them."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanobot.memory.consolidation.changes import SaveArguments, read_reply
from nanobot.memory.consolidation.summariser import SAVE_MEMORY
from nanobot.memory.history import with_stamp
from nanobot.messages import ToolCall
from nanobot.providers.port import Reply

ENTRY = "[2026-03-10 18:00] They chose blue."
GOOD = {"history_entry": ENTRY, "memory_update": "# Memory\n\n- likes blue", "key_facts": ["blue"]}
WHOLE = SaveArguments(ENTRY, "# Memory\n\n- likes blue", ("blue",))


def call_with(arguments: object, name: str = "save_memory", finish: str = "tool_calls") -> Reply:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return Reply("", (ToolCall("1", name, text),), finish=finish)


@pytest.mark.parametrize(
    "reply",
    [
        call_with(GOOD),
        call_with(json.dumps(json.dumps(GOOD))),
        call_with(json.dumps(json.dumps(json.dumps(GOOD)))),
        call_with([GOOD, {"history_entry": "another"}]),
        call_with(["and", GOOD]),
        call_with(f"```json\n{json.dumps(GOOD)}\n```"),
        call_with(f"Here it is: {json.dumps(GOOD)} Done."),
        call_with({**GOOD, "history_entry": {"text": ENTRY}}),
        call_with({**GOOD, "memory_update": {"content": GOOD["memory_update"]}}),
        call_with({**GOOD, "memory_update": ["# Memory", "", "\n- likes blue"]}),
        call_with({**GOOD, "memory_update": f"```markdown\n{GOOD['memory_update']}\n```"}),
        call_with({**GOOD, "key_facts": "- blue\n\n- blue"}),
        call_with({**GOOD, "key_facts": [{"fact": "blue"}, None, ""]}),
        Reply("", (ToolCall("1", "look", "{}"), *call_with(GOOD).tool_calls)),
        Reply(json.dumps(GOOD)),
        Reply(f"I would save this:\n```json\n{json.dumps(GOOD, indent=1)}\n```"),
    ],
)
def test_whatever_says_what_was_meant_is_taken(reply: Reply) -> None:
    assert read_reply(reply) == WHOLE


def test_lines_of_the_conversation_that_a_small_model_copies_are_no_facts() -> None:
    update = """# Memory

- likes blue
- [2026-11-27T02:39] USER: Our boat lies at berth 417.
[2026-11-27T02:39] ASSISTANT [tools: note]: I noted that.
[?] TOOL: saved
[tools: cron]: Done
2026-11-27 03:27:00, USER: The dentist moved it."""
    saved = read_reply(call_with({**GOOD, "memory_update": update}))
    assert isinstance(saved, SaveArguments)
    assert (
        saved.memory_update
        == "# Memory\n\n- likes blue\n- Our boat lies at berth 417.\nThe dentist moved it."
    )


@pytest.mark.parametrize("update", ["", "  \n", None, {}, [], True])
def test_an_empty_update_changes_nothing(update: object) -> None:
    saved = read_reply(call_with({**GOOD, "memory_update": update}))
    assert saved == SaveArguments(ENTRY, None, ("blue",))


def test_missing_fields_beyond_the_entry_are_no_failure() -> None:
    assert read_reply(call_with({"history_entry": ENTRY})) == SaveArguments(ENTRY)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(""), "there was no call"),
        (Reply("All is saved."), "there was text instead of a call"),
        (call_with({}, name="look"), "'look' was called instead"),
        (call_with(""), "not a JSON object"),
        (call_with("[1, 2]"), "not a JSON object"),
        (call_with("[" * 100_000), "not a JSON object"),
        (call_with("{oops", finish="length"), "cut off"),
        (call_with({}), "history_entry is missing"),
        (call_with({**GOOD, "history_entry": " "}), "history_entry is missing"),
        (call_with({**GOOD, "history_entry": "[2026-03-10 18:00] "}), "history_entry is missing"),
        (Reply('{"note": 1}'), "there was text instead of a call"),
    ],
)
def test_the_rest_is_refused_with_a_reason_for_the_model(reply: Reply, reason: str) -> None:
    problem = read_reply(reply)
    assert isinstance(problem, str)
    assert reason in problem


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
FIELDS = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(SAVE_MEMORY.parameters["properties"], JSON)
)


@settings(derandomize=True, deadline=None, max_examples=40, database=None)
@given(st.one_of(FIELDS, JSON).map(json.dumps) | st.text(max_size=40), st.text(max_size=20))
def test_nothing_that_a_model_says_breaks_the_reader(arguments: str, text: str) -> None:
    for reply in (call_with(arguments), Reply(arguments), Reply(text)):
        saved = read_reply(reply)
        if isinstance(saved, SaveArguments):
            assert saved.history_entry
            assert "\n" not in saved.history_entry
            assert saved.memory_update is None or saved.memory_update.strip()
            assert all(fact and "\n" not in fact for fact in saved.key_facts)


@pytest.mark.parametrize(
    ("entry", "stamped"),
    [
        ("They chose blue.", "[2026-03-10 18:00] They chose blue."),
        ("[2025-01-02 03:04] Old.", "[2025-01-02 03:04] Old."),
        ("[2025-01-02T03:04] Old.", "[2025-01-02 03:04] Old."),
        ("[note] Old.", "[2026-03-10 18:00] [note] Old."),
    ],
)
def test_the_time_is_put_in_front_where_the_model_forgot_it(entry: str, stamped: str) -> None:
    assert with_stamp(entry, datetime(2026, 3, 10, 18, 0, tzinfo=UTC)) == stamped
