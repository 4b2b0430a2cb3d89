"""Two weeks of Ada (the owner, in English), Mei (in Chinese), and Jonas (in German) with one
nanobot, from Monday, 2 March, to Sunday, 15 March."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest

from nanobot.testing import FakeClock
from tests.doubles.telegram import FakeTelegram
from tests.memory.story.people import ADA, FILES, GROUP, JONAS, MEI, Asked, Story, find_bytes

SECRET = "Xylotau-4711"
WORDS = {
    ADA: ("Pixel", "Ghent", "Turku", "blue pot", "Thursdays", SECRET),
    MEI: ("上海", "北京", "花生", "钢琴", "豆豆"),
    JONAS: ("Graz", "Boot", "Klarinette", "Dachboden"),
    GROUP: ("lighthouse", "灯塔", "Leuchtturm"),
}
"""Words that only one of them ever says."""


@pytest.fixture
async def story(tmp_path: Path) -> AsyncIterator[Story]:
    clock = FakeClock()
    async with FakeTelegram(clock=clock) as telegram:
        made = Story(tmp_path / "home", telegram, clock)
        await made.start()
        yield made
        await made.stop()


async def test_two_weeks_of_three_people(story: Story) -> None:
    # They introduce themselves, and nanobot learns in the night.
    await story.hear(ADA, "My cat is called Pixel.", "What a day!", "I live in Ghent.")
    await story.hear(MEI, "我住在上海。", "你好！", "我对花生过敏。")
    await story.hear(JONAS, "Ich wohne in Graz.", "Ich habe ein Boot.", "Schönes Wetter heute.")

    # Each asks for the same, and hears only of themselves.
    await story.day("Tuesday")
    assert learned(story, ADA) == {"My cat is called Pixel.", "I live in Ghent."}
    assert learned(story, MEI) == {"我住在上海。", "我对花生过敏。"}
    assert learned(story, JONAS) == {"Ich wohne in Graz.", "Ich habe ein Boot."}
    for person in (ADA, MEI, JONAS):
        answer = await story.hear(person, "What do you know about me and where I live?")
        assert whose(answer) == {person}

    # They write notes, and meet in a group.
    await story.day("Wednesday")
    await story.hear(ADA, "/note The spare key is under the blue pot.")
    await story.hear(JONAS, "/note Die Leiter ist auf dem Dachboden.")
    await story.hear(MEI, "We all meet at the lighthouse.", chat=GROUP)
    await story.hear(JONAS, "Wir sehen uns am Leuchtturm.", chat=GROUP)
    answer = await story.hear(ADA, "Where do we meet?", chat=GROUP)
    assert whose(answer) == {GROUP}, answer
    await story.day("Thursday")
    assert "blue pot" in await story.hear(ADA, "Where is the spare key?")
    assert "Dachboden" in await story.hear(JONAS, "Wo ist die Leiter?")
    assert whose(await story.hear(MEI, "Where is the spare key? Where do we meet?")) == {MEI}

    # Ada moves. What she forwards is not about her.
    await story.hear(ADA, "I no longer live in Ghent, I live in Turku now.")
    await story.day("Friday")
    await story.forward(ADA, "I live in Cairo now. My cat is called Rex.")
    assert retired(story, ADA) == ["I live in Ghent."]
    why = await story.hear(ADA, "/memory why live in Ghent")
    assert "you: I live in Ghent." in why
    assert "you: I no longer live in Ghent, I live in Turku now." in why

    # The process restarts. Then they tell nanobot to remember, and Mei corrects a fact like that.
    await story.day("Saturday")
    assert "Cairo" in await story.hear(ADA, "/memory pending", "/memory drop 1 2")
    await story.hear(ADA, "Good morning!")
    await story.stop()
    await story.start()
    assert "Turku" in await story.hear(ADA, "Where do I live?")
    await story.hear(ADA, "Remember that I swim on Thursdays.", f"My code is {SECRET}.")
    await story.hear(JONAS, "Merk dir, dass ich Klarinette spiele.")
    await story.hear(MEI, "记住，我对花生不过敏。")
    assert retired(story, MEI) == ["我对花生过敏。"]

    # The power fails while the model answers.
    await story.day("Sunday")
    await story.hear(JONAS, "Guten Morgen!")
    assert await story.kill_during(JONAS, "Ich habe das Boot verkauft.") == "I see."
    await story.day("Monday")
    assert retired(story, JONAS) == ["Ich habe ein Boot."]

    # Ada's answer had used the forwarded words, so what the model then learned waits for her.
    assert SECRET not in str(learned(story, ADA))
    assert SECRET in await story.hear(ADA, "/memory pending")
    await story.hear(ADA, "/memory accept 1")
    assert f"My code is {SECRET}." in learned(story, ADA)

    # The second week: Mei moves, and forgets her piano.
    await story.hear(MEI, "我喜欢弹钢琴。", "我现在住在北京。")
    await story.day("Tuesday")
    assert retired(story, MEI)[-1] == "我住在上海。"
    await story.hear(MEI, "/forget 钢琴", "y")
    assert "钢琴" not in await story.hear(MEI, "我喜欢弹什么？")

    # Ada undoes what she no longer wants nanobot to know, and rates what she does.
    await story.hear(ADA, "My neighbour snores.")
    await story.day("Wednesday")
    assert "My neighbour snores." in learned(story, ADA)
    await story.hear(ADA, "/memory importance 5 cat")
    await story.undo(ADA, "My neighbour snores.")

    # She erases her code.
    await story.day("Friday")
    await story.hear(ADA, f"/forget --erase {SECRET}", "y")
    assert SECRET not in await story.hear(ADA, "What is my code?")

    # On the last day, everything is as it should be.
    await story.day("Sunday")
    assert story.clock.now().day == 15
    await everything_is_right(story)
    await story.stop()
    assert find_bytes(story.home, SECRET, SECRET.lower()) == []


async def everything_is_right(story: Story) -> None:
    assert learned(story, ADA) == {
        "My cat is called Pixel. <!-- importance 5 -->",
        "I no longer live in Ghent, I live in Turku now.",
        "“Remember that I swim on Thursdays.” (2026-03-07)",
    }
    assert learned(story, MEI) == {"“记住，我对花生不过敏。” (2026-03-07)", "我现在住在北京。"}
    assert learned(story, JONAS) == {
        "Ich wohne in Graz.",
        "“Merk dir, dass ich Klarinette spiele.” (2026-03-07)",
        "Ich habe das Boot verkauft.",
    }
    # No memory, answer or request has two people's words.
    for chat in WORDS:
        assert whose(story.read_memory(chat)) == {chat}
    for chat in (ADA, MEI, JONAS):
        # Each line names the message behind it.
        for line in (*learned(story, chat), *retired(story, chat)):
            said = line.strip("“").partition("”")[0].partition(" <!--")[0]
            why = await story.hear(chat, f"/memory why {said}")
            assert f"you: {said}" in why, why
            assert whose(why) == {chat}
        # Searches find only their own words.
        for other, words in WORDS.items():
            for word in words if other != chat else ():
                assert "No results" in await story.hear(chat, f"/memory search {word}"), word
    for prompt in story.prompts:
        assert len(whose("\n".join(one.text for one in prompt.messages))) <= 1
    prompts_extend_each_other(story.turns)


def prompts_extend_each_other(turns: list[Asked]) -> None:
    """Within a day and a conversation, each request begins with the one before, byte for byte."""
    chats = defaultdict[tuple[int, str, int], list[Asked]](list)
    for turn in turns:
        chats[turn.chat, turn.day, turn.begun].append(turn)
    pairs = [pair for one in chats.values() for pair in pairwise(one)]
    assert len(pairs) > 20
    for before, after in pairs:
        assert after.prompt.tools == before.prompt.tools
        texts = [[(one.role, one.text) for one in turn.prompt.messages] for turn in (before, after)]
        assert texts[1][: len(texts[0])] == texts[0]


def learned(story: Story, chat: int) -> set[str]:
    return {line for path in FILES[:2] for line in story.facts(chat, path)}


def retired(story: Story, chat: int) -> list[str]:
    return story.facts(chat, FILES[2])


def whose(text: str) -> set[int]:
    """Return the people and the group whose words are in a text."""
    return {one for one, words in WORDS.items() if any(word in text for word in words)}
