"""Headings and tables are rendered if the server supports them, otherwise as plain text."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.bus.events import Button
from nanobot.errors import SendUnknown
from nanobot_telegram.markdown import render
from nanobot_telegram.rich import Block, rich_blocks
from tests.channels.telegram.sending import GROUP, Rig, set_up_rig, start_rig
from tests.channels.telegram.test_markdown import MARKDOWN
from tests.doubles.telegram import FakeTelegram
from tests.doubles.telegram.rich import rich_problem, visible_text
from tests.doubles.telegram.schema import DOCUMENTED, read_schema

REPORT = """# Trip

Two **ways**, [both](https://a.example/x) short:

| way | km |
|:----|---:|
| by *sea* | 12 |
| by land | |

> quoted
> - item

- ☕ first
  1. second
- [x] done

```python

x = 1
```

about ~10 km"""
CLASSIC = render(REPORT).text
BOTH = ("sendMessage", "sendRichMessage")


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with set_up_rig(tmp_path) as rig:
        rig.telegram.group(GROUP)
        yield rig


def calls(telegram: FakeTelegram) -> list[str]:
    return [call.method for call in telegram.calls_of(*BOTH)]


async def test_headings_and_tables_are_shown_as_such(rig: Rig) -> None:
    receipt = await rig.send(REPORT)
    (sent,) = rig.telegram.messages()
    assert (sent.kind, str(sent.message_id)) == ("rich", receipt.platform_id)
    assert [block["type"] for block in sent.blocks] == (
        ["heading", "paragraph", "table", "blockquote", "list", "pre", "paragraph"]
    )
    heading, words, table, quote, points, code, notes = sent.blocks
    assert heading == {"type": "heading", "text": "Trip", "size": 1}
    assert words["text"] == [
        "Two ",
        {"type": "bold", "text": "ways"},
        ", ",
        {"type": "url", "text": "both", "url": "https://a.example/x"},
        " short:",
    ]
    side = {"align": "left", "valign": "top"}
    assert table["cells"] == [
        [
            {**side, "text": "way", "is_header": True},
            {"text": "km", "align": "right", "valign": "top", "is_header": True},
        ],
        [
            {**side, "text": ["by ", {"type": "italic", "text": "sea"}]},
            {"text": "12", "align": "right", "valign": "top"},
        ],
        [{**side, "text": "by land"}, {"text": "", "align": "right", "valign": "top"}],
    ]
    assert visible_text([quote]) == "quoted\n• item"
    inner = {"blocks": [{"type": "paragraph", "text": "second"}], "value": 1, "type": "1"}
    assert points["items"] == [
        {"blocks": [{"type": "paragraph", "text": "☕ first"}, {"type": "list", "items": [inner]}]},
        {
            "blocks": [{"type": "paragraph", "text": "done"}],
            "has_checkbox": True,
            "is_checked": True,
        },
    ]
    assert code == {"type": "pre", "text": "\nx = 1", "language": "python"}
    assert notes["text"] == "about ~10 km"


async def test_a_server_without_rich_messages_shows_todays_form_and_is_asked_once(
    tmp_path: Path,
) -> None:
    async with FakeTelegram(without={"sendRichMessage"}) as telegram:
        async with start_rig(tmp_path, telegram) as rig:
            for _ in range(3):
                await rig.send(REPORT)
        assert telegram.texts() == [CLASSIC] * 3
        assert calls(telegram) == ["sendRichMessage", *["sendMessage"] * 3]
        assert {entity["type"] for entity in telegram.messages()[0].entities} >= {"bold", "pre"}
        assert not telegram.violations


async def test_switched_off_no_rich_message_is_sent(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram, start_rig(tmp_path, telegram, rich=False) as rig:
        await rig.send(REPORT)
        assert telegram.texts() == [CLASSIC]
        assert calls(telegram) == ["sendMessage"]


async def test_a_rich_message_that_is_refused_is_delivered_once_in_todays_form(rig: Rig) -> None:
    rig.telegram.fail("sendRichMessage", 400, "Bad Request: RICH_MESSAGE_INVALID")
    await rig.send(REPORT)
    await rig.send("# Next")
    assert [sent.kind for sent in rig.telegram.messages()] == ["text", "rich"]
    assert rig.telegram.texts() == [CLASSIC, "Next"]


async def test_a_text_without_headings_and_tables_is_a_message_like_any_other(rig: Rig) -> None:
    await rig.send("- a **list**\n\n> and a quote\n\n- # of an item")
    assert calls(rig.telegram) == ["sendMessage"]


async def test_a_rich_message_keeps_its_reply_its_topic_and_its_buttons(tmp_path: Path) -> None:
    async with set_up_rig(tmp_path) as rig:
        telegram, forum = rig.telegram, rig.telegram.group(-1_000_000_000_777, forum=True)
        thread = telegram.topic(forum)
        question = telegram.say("?", chat=forum, thread=thread)
        buttons = (Button("Yes", "/approve 1", id="b1"),)
        await rig.send("# Q", chat=forum, reply_to=question, thread=thread, buttons=buttons)
        telegram.delete_topic(forum, thread)
        await rig.send("# Q", chat=forum, thread=thread)
        first, second = telegram.messages(forum)
        assert (first.reply_to, first.thread, first.labels) == (question, thread, ("Yes",))
        assert (second.kind, second.thread) == ("rich", None)


async def test_what_is_not_known_to_have_arrived_is_left_to_the_core(rig: Rig) -> None:
    rig.telegram.cut("sendRichMessage", after="effect")
    with pytest.raises(SendUnknown):
        await rig.send(REPORT)
    assert len(rig.telegram.messages()) == 1


async def test_a_server_that_fails_at_the_rich_form_gets_the_other_with_the_next_attempt(
    rig: Rig,
) -> None:
    rig.telegram.fail("sendRichMessage", 500, times=9)
    with pytest.raises(SendUnknown):
        await rig.send(REPORT)
    await rig.send(REPORT)
    assert rig.telegram.texts() == [CLASSIC]


@pytest.mark.parametrize("markdown", ["# a", "a\n===", "a\n-", "> a\n> --", "a|b\r\n-|-"])
def test_every_heading_and_table_is_found(markdown: str) -> None:
    assert rich_blocks(markdown)


def words(text: str) -> list[str]:
    """Return the words without layout characters."""
    return re.findall(r"[^\W_]+", text)


@given(MARKDOWN, st.sampled_from(["# head\n\n", "|a|b|\n|-|:-:|\n|c|d|\n\n", ""]))
def test_both_forms_of_any_markdown_say_the_same_and_the_rich_one_is_valid(
    markdown: str, first: str
) -> None:
    markdown = first + markdown
    if blocks := rich_blocks(markdown):
        check(blocks)
        lost = set(words(visible_text(blocks))) ^ set(words(render(markdown).text))
        assert not {word for word in lost if not re.match(r"https?|a|example", word)}


@pytest.mark.parametrize(
    "markdown",
    [
        "|" + "a|" * 21 + "\n|" + "-|" * 21,
        "# a\n\n" + "|a|\n|-|\n" + "|b|\n" * 500,
        "# a\n\n" * 501,
        "# a\n\n" + "- b\n" * 250,
        "# a\n\n" + "".join(f"{'  ' * depth}- b\n" for depth in range(8)),
        "# a\n\n" + "[" * 2000,
        "|a|\n|-|\n|b|c|",
    ],
)
def test_what_the_method_does_not_take_has_no_rich_form(markdown: str) -> None:
    assert rich_blocks(markdown) == []


def check(blocks: Sequence[Block]) -> None:
    """Check the rules of the double, and the documentation if it is available."""
    message = {"blocks": json.loads(json.dumps(blocks))}
    assert not rich_problem(message)
    if DOCUMENTED.exists():
        fields = {"chat_id": 1, "rich_message": message}
        assert not read_schema(DOCUMENTED).problem("sendRichMessage", fields, {})
