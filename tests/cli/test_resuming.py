"""Going from one conversation to another: `/new`, `/resume`, and the options of `nanobot agent`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from nanobot.clock import SystemClock
from nanobot_cli.conversations import Conversation, ConversationList, LastConversation
from nanobot_cli.picker import render_entry
from nanobot_cli.text import columns
from tests.cli.support import Nanobot
from tests.cli.test_terminal import PATIENCE, Chat, chat

__all__ = ["chat"]
pytestmark = pytest.mark.process

NOW = SystemClock().now()
DOWN = "\x1b[B"


def listed(key: str, title: str, at: str = "2026-11-20T21:14:00+00:00", **more: Any) -> Any:
    return {"key": key, "title": title, "updated_at": at, "scope": "owner", **more}


FOUND = [
    listed("cli:direct", "Tea in Kyoto"),
    listed("cli:garden", "", preview="The \x1b[2Jgarden plan"),
    listed("telegram:7", "Holiday", "2026-11-25T10:00:00+00:00"),
    listed("web:ab", "Taxes", "2026-11-24T10:00:00+00:00"),
    listed("telegram:8", "Of another person", scope="people/8"),
]


@pytest.fixture
def conversations(gateway: Any) -> None:
    gateway.answers["conversations.list"] = {"total": 5, "conversations": FOUND}
    gateway.answers["conversations.show"] = {
        "new": True,
        "messages": [
            {"seq": 1, "role": "user", "content": "where is the spade?"},
            {"seq": 2, "role": "user", "content": "secret page", "origin": "tool:web_fetch"},
            {"seq": 3, "role": "assistant", "content": "in the *shed*"},
        ],
    }


def plain(text: str) -> str:
    return re.sub("\x1b\\[[^a-zA-Z]*[a-zA-Z]", "", text)


@pytest.mark.usefixtures("conversations")
def test_new_begins_a_conversation_that_the_next_chat_continues(
    chat: Chat, gateway: Any, home: Path
) -> None:
    with chat() as screen:
        screen.wait_for(">")
        screen.type("one\r")
        screen.wait_for("echo: one")
        screen.type("/new\r")
        screen.wait_for("New conversation.")
        screen.type("two\r")
        screen.wait_for("echo: two")
        screen.type("\x04")
        screen.end()
    (first, _), (second, _) = gateway.said
    assert first == "cli:direct"
    assert re.fullmatch(r"cli:\d{6}-\d{4}", second)
    assert (home / "state" / "cli_session").read_text() == second
    with chat() as screen:
        screen.wait_for(">")
        screen.type("three\r")
        screen.wait_for("echo: three")
    assert gateway.said[-1] == (second, "three")


@pytest.mark.usefixtures("conversations")
def test_another_conversation_is_chosen_with_the_keys_and_its_end_is_shown(
    chat: Chat, gateway: Any
) -> None:
    with chat() as screen:
        screen.wait_for(">")
        screen.type("/resume\r")
        shown = plain(screen.wait_for("Taxes"))
        assert "Tea in Kyoto" in shown
        assert "The garden plan" in shown
        assert "another person" not in shown
        screen.type(f"{DOWN}\r")
        shown = plain(screen.wait_for("shed"))
        assert "where is the spade?" in shown
        assert "secret" not in shown
        screen.type("thanks\r")
        screen.wait_for("echo: thanks")
    assert gateway.said == [("cli:garden", "thanks")]


@pytest.mark.usefixtures("conversations")
def test_typed_words_search_in_all_messages_and_a_chat_of_another_channel_is_copied(
    chat: Chat, gateway: Any
) -> None:
    gateway.answers["conversations.search"] = {
        "hits": [
            {"key": "telegram:7", "title": "Holiday", "at": "2026-11-01T10:00:00+00:00",
             "snippet": "the boat leaves\x1b[2J at nine"},
            {"key": "telegram:7", "title": "Holiday", "at": "2026-10-01T10:00:00+00:00",
             "snippet": "an older boat"},
        ]
    }  # fmt: skip
    with chat("--resume", "boat") as screen:
        shown = plain(screen.wait_for("the boat leaves at nine"))
        assert "search: boat" in shown
        screen.wait_for("Esc goes back")
        screen.type(f"{DOWN}{DOWN}\r")
        screen.wait_for("echo: /continue telegram:7")
    ((key, text),) = gateway.said
    assert text == "/continue telegram:7"
    assert re.fullmatch(r"cli:\d{6}-\d{4}", key)
    wanted = {"query": "boat", "scope": "owner", "limit": 50}
    assert wanted.items() <= dict(gateway.asked)["conversations.search"].items()


@pytest.mark.usefixtures("conversations")
def test_escape_keeps_the_conversation(chat: Chat, gateway: Any) -> None:
    with chat("--resume") as screen:
        screen.wait_for("Esc goes back")
        screen.type("\x1b")
        screen.wait_for("\x1b[0;1m>")
        screen.type("one\r")
        screen.wait_for("echo: one")
    assert gateway.said == [("cli:direct", "one")]


@pytest.mark.usefixtures("conversations")
def test_a_terminal_without_a_cursor_shows_numbers(chat: Chat, gateway: Any) -> None:
    with chat(TERM="dumb") as screen:
        screen.wait_for(">")
        screen.type("/resume\r")
        assert "  2. The garden plan · " in screen.wait_for("type its number.")
        screen.type("2\r")
        assert "> where is the spade?" in screen.wait_for("in the shed")
        screen.type("2\r")
        screen.wait_for("echo: 2")
    assert gateway.said == [("cli:garden", "2")]


@pytest.mark.usefixtures("conversations")
@pytest.mark.parametrize("command", ["/new", "/resume"])
def test_nobody_leaves_a_conversation_whose_turn_runs(
    chat: Chat, gateway: Any, command: str
) -> None:
    with chat() as screen:
        screen.wait_for(">")
        screen.type("hang on\r")
        screen.wait_for("so far")
        screen.type(f"{command}\r")
        screen.wait_for("Wait for the answer, or stop it with Ctrl-C.")
    assert gateway.said == [("cli:direct", "hang on")]


def test_a_question_of_another_conversation_is_answered_there(chat: Chat, gateway: Any) -> None:
    with chat("-s", "cli:work") as screen:
        screen.wait_for(">")
        choices = ("Approve", "/approve C1"), ("Deny", "/deny C1")
        gateway.announce("May I do it?", *choices, chat="direct")
        screen.wait_for("In another conversation:")
        screen.wait_for("May I do it?")
        screen.type("y\r")
        assert gateway.arrived.get(timeout=PATIENCE) == "/approve C1"
    assert gateway.said == [("cli:direct", "/approve C1")]


@pytest.mark.usefixtures("conversations")
def test_an_open_question_is_still_answered_where_it_was_asked(chat: Chat, gateway: Any) -> None:
    with chat() as screen:
        screen.wait_for(">")
        screen.type("one\r")
        screen.wait_for("echo: one")
        gateway.announce("May I do it?", ("Approve", "/approve C1"), ("Deny", "/deny C1"))
        screen.wait_for("May I do it?")
        screen.type("/new\r")
        screen.wait_for("New conversation.")
        screen.wait_for("In another conversation:")
        screen.type("n\r")
        assert gateway.arrived.get(timeout=PATIENCE) == "one"
        assert gateway.arrived.get(timeout=PATIENCE) == "/deny C1"
    assert gateway.said[-1] == ("cli:direct", "/deny C1")


@pytest.mark.usefixtures("conversations")
def test_a_pipe_shows_numbers_and_its_first_line_chooses(here: Nanobot, gateway: Any) -> None:
    done = here("agent", "--resume", stdin="")
    assert "  3. Holiday · " in done.stdout
    assert "· Telegram" in done.stdout
    done = here("agent", "--resume", stdin="4\nhello\n")
    assert done.stdout.endswith("echo: hello\n")
    assert gateway.said == [("web:ab", "hello")]
    assert here("agent", "--resume", stdin="9\nhello\n").returncode == 2
    done = here("agent", "--resume", stdin="3\n")
    assert gateway.said[-1][1] == "/continue telegram:7"


@pytest.mark.usefixtures("conversations")
def test_continue_goes_to_the_last_used_of_terminal_and_page(here: Nanobot, gateway: Any) -> None:
    assert here("agent", "--continue", "-m", "hello").stdout == "echo: hello\n"
    assert gateway.said == [("web:ab", "hello")]
    assert here("agent", "--resume", "-m", "x").returncode == 2
    assert here("agent", "--continue", "-s", "cli:x", "-m", "x").returncode == 2


def test_a_script_keeps_its_conversation_whatever_the_terminal_does(
    here: Nanobot, gateway: Any, home: Path
) -> None:
    LastConversation(home / "state" / "cli_session").write("cli:261127-2043")
    here("agent", "-m", "one")
    here("agent", stdin="two\n")
    assert gateway.said == [("cli:direct", "one"), ("cli:direct", "two")]


@pytest.mark.parametrize("kept", ["", "web:ab", "cli:", "cli:a\x1bb", "\udcff"])
def test_an_unusable_file_means_the_default_conversation(tmp_path: Path, kept: str) -> None:
    path = tmp_path / "cli_session"
    path.write_bytes(kept.encode("utf-8", "surrogateescape"))
    assert LastConversation(path).read() == "cli:direct"
    LastConversation(path).write("web:ab")
    assert LastConversation(path).read() == "cli:direct"
    LastConversation(path).write("cli:new")
    assert LastConversation(path).read() == "cli:new"
    LastConversation(tmp_path / "none" / "file").write("cli:new")


@pytest.mark.parametrize(
    ("marks", "shown"),
    [
        ([[41, 45]], "…jumps over the lazy boat at nine"),
        ([[4, 9]], "the quick brown fox jumps over the lazy boat at nine"),
        ([], "the quick brown fox jumps over the lazy boat at nine"),
        ([["?"]], "the quick brown fox jumps over the lazy boat at nine"),
    ],
)
def test_a_hit_begins_shortly_before_its_word(marks: list[Any], shown: str) -> None:
    snippet = "the quick brown fox jumps over the lazy boat at nine"
    hit = {"key": "cli:a", "at": "", "snippet": snippet, "marks": marks}
    known = ConversationList(lambda *_: {"hits": [hit], "conversations": []})
    (found,) = known.find("boat").page
    assert found.hit == shown


def test_a_new_key_is_never_used_before() -> None:
    used = {"cli:261121-1200", "cli:261121-1200-3"}

    def ask(_: str, arguments: Any) -> object:
        return {"new": arguments["key"] not in used}

    known = ConversationList(ask)
    noon = NOW.replace(year=2026, month=11, day=21, hour=12, minute=0)
    assert known.new_key(noon, "cli:261121-1200-2") == "cli:261121-1200-4"


@pytest.mark.parametrize("width", [20, 40, 80])
@pytest.mark.parametrize("title", ["", "Tea", "a long title " * 9, "緑茶の計画" * 12])
def test_an_entry_fits_the_terminal(width: int, title: str) -> None:
    one = Conversation("telegram:7", title, "2026-10-20T21:14:00+00:00", title)
    lines = render_entry(one, NOW, width, is_chosen=True)
    assert all(columns(text) < width for _, text in lines)
