"""Questions about the past are answered from `search_memory`, with the date, or honestly not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.providers.offline.bench import Bench

RESULT = """5 found for “boat”, best first:

No longer true (retired from memory on the day given):
  - retired 2026-01-02: User's favourite sport is golf

[1] 2026-03-10 Tue 18:00 · user · telegram:1 · id=m:telegram:1:42
  before: assistant 17:59: hello there
  | My boat is moored in Faro. See you!
  | My boat is called Mar.
  after: assistant 18:00: My boat is moored in Atlantis

[2] 2026-03-11 Wed 09:30 · user · telegram:1 · id=m:telegram:1:50
  before: user 09:29: I park on level 3
  | where is my boat moored?
  | I went to the dentist and paid 80 euros

[3] 2026-03-12 Thu 18:09 · summary · history 3 · id=h:owner:3
  | [2026-03-12 18:09] The user said: “The parcel station is behind the church”.

[4] 2026-03-13 Fri 08:00 · note · 2026-03-13.md:3 · id=n:owner:2026-03-13:1
  | - 08:00 my locker is number 12

[5] no date · document · library/trip.pdf p. 3 · id=l:trip.pdf:4
  | The ferry to Culatra leaves at 9:30.

[6] 2026-03-14 Sat 08:00 · user · telegram:1 · id=m:telegram:1:60
  | 我的船停在法鲁

[7] 2026-03-15 Sun 08:00 · tool · telegram:1 · from tool:web_fetch · id=m:telegram:1:61
  | My cat is called Mallory

around=<id> reads on. Not it? Search again with other words."""

MISS = """Nothing found for “x”.
Looked for the words: dog, name.
Words that are there and come close: dogs.
Try other words; if they find nothing either, say that you do not know."""


@pytest.fixture
def searching(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path, tools=("read_file", "edit_file", "write_file", "search_memory"))
    bench.search_result = RESULT
    return bench


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("where is my boat moored?", "You told me on 2026-03-10: “My boat is moored in Faro.”"),
        ("what is the name of my boat?", "You told me on 2026-03-10: “My boat is called Mar.”"),
        (
            "When did I go to the dentist?",
            "You told me on 2026-03-11: “I went to the dentist and paid 80 euros”",
        ),
        (
            "how much did I pay at the dentist?",
            "You told me on 2026-03-11: “I went to the dentist and paid 80 euros”",
        ),
        ("where do I park?", "You told me on 2026-03-11: “I park on level 3”"),
        (
            "where is the parcel station?",
            "From my summary of a conversation of 2026-03-12: "
            "The user said: “The parcel station is behind the church”.",
        ),
        ("which locker is mine?", "From the notes of 2026-03-13: my locker is number 12"),
        (
            "when does the ferry to Culatra leave?",
            "In library/trip.pdf p. 3 I found: The ferry to Culatra leaves at 9:30.",
        ),
        (
            "what was my favourite sport?",
            "I only have what is no longer true, since 2026-01-02: Your favourite sport is golf.",
        ),
        ("我的船停在哪里？", "你在 2026-03-14 告诉过我：“我的船停在法鲁”"),
    ],
)
async def test_what_the_prompt_does_not_say_is_searched_for(
    searching: Bench, question: str, answer: str
) -> None:
    assert await searching.say(question) == answer
    assert [name for name, _ in searching.calls] == ["read_file", "search_memory"]


@pytest.mark.parametrize(
    ("question", "topic", "answer"),
    [
        ("What did I tell you about my dentist?", "my dentist", "on 2026-03-11: “I went to the"),
        ("When did I tell you about the dentist?", "the dentist", "on 2026-03-11: “I went to the"),
        ("did I ever mention the dentist?", "the dentist", "on 2026-03-11: “I went to the"),
        ("Remind me what I said about the dentist.", "the dentist", "“I went to the dentist"),
        ("what did we discuss about the parcel station?", "the parcel station", "behind the"),
        ("我跟你说过我的船吗？", "我的船", "2026-03-14 告诉过我"),
        ("关于我的船，我说过什么？", "我的船", "2026-03-14 告诉过我"),
    ],
)
async def test_what_was_told_is_searched_for_by_its_topic(
    searching: Bench, question: str, topic: str, answer: str
) -> None:
    assert answer in await searching.say(question)
    assert searching.calls == [("search_memory", {"query": topic})]


async def test_several_things_told_are_quoted_in_their_order(searching: Bench) -> None:
    assert await searching.say("What did I tell you about my boat?") == (
        "You told me on 2026-03-10: “My boat is moored in Faro.”\n"
        "You told me on 2026-03-10: “My boat is called Mar.”"
    )


async def test_a_newer_statement_wins_over_an_older_one(searching: Bench) -> None:
    searching.search_result = """2 found for “x”, best first:

[1] 2026-01-05 Mon 18:00 · user · telegram:1 · id=m:telegram:1:2
  | My favourite colour is blue

[2] 2026-03-05 Thu 18:00 · user · telegram:1 · id=m:telegram:1:9
  | My favourite colour is green"""
    assert await searching.say("what is my favourite colour?") == (
        "You told me on 2026-03-05: “My favourite colour is green”"
    )


async def test_a_miss_is_searched_for_in_other_words_and_then_admitted(searching: Bench) -> None:
    searching.search_result = MISS
    assert "I don't know that" in await searching.say("what is the name of my dog?")
    queries = [arguments["query"] for name, arguments in searching.calls if name == "search_memory"]
    assert queries == ["what is the name of my dog?", "name call 名字 姓名 叫 名叫 dog"]


@pytest.mark.parametrize("question", ["what is my cat called?", "what is the name of my horse?"])
async def test_tool_results_and_its_own_words_answer_nothing(
    searching: Bench, question: str
) -> None:
    assert "I don't know that" in await searching.say(question)


async def test_a_fact_in_the_prompt_needs_no_search(searching: Bench) -> None:
    await searching.say("I park on level 5")
    searching.new_conversation()
    searching.calls.clear()
    assert await searching.say("where do I park?") == "You park on level 5."
    assert searching.calls == []


async def test_what_was_told_and_is_in_no_search_is_still_known_from_memory(
    searching: Bench,
) -> None:
    await searching.say("I park on level 5")
    searching.new_conversation()
    searching.search_result = MISS
    assert "level 5" in await searching.say("what did I tell you about where I park?")


async def test_a_search_that_fails_is_no_answer(searching: Bench) -> None:
    searching.broken["search_memory"] = "search_memory failed unexpectedly (OSError)"
    assert "I don't know that" in await searching.say("where is my boat moored?")
