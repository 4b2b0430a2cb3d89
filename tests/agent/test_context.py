"""What the model reads, and that it stays the same byte for byte while it may."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from nanobot.agent.media import MediaStore
from nanobot.agent.prompt import SEPARATOR, ContextBuilder, PromptPart, ScopedSources
from nanobot.messages import Message, ToolCall
from nanobot.providers.port import Image, Prompt, Toolset
from nanobot.session.manager import SessionManager
from nanobot.session.session import Session
from nanobot.testing import FakeClock

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=ZoneInfo("Europe/Berlin"))
DAY = 24 * 3600.0


class Pictures(MediaStore):
    """Has the same image under every name, and notes what it was asked for."""

    def __init__(self, folder: Path, image: Image | None) -> None:
        super().__init__(folder)
        self.asked: list[str] = []
        self._image = image

    def image(self, name: str) -> Image | None:
        self.asked.append(name)
        return self._image


class Instructions(ScopedSources):
    """A system prompt with a memory that a test changes."""

    forgotten = 0

    def __init__(self) -> None:
        self.memory = "- likes tea"
        self.readable = True

    def tools(self, session: Session) -> Toolset:
        return Toolset((), b"[]")

    def parts(self, session: Session) -> Sequence[PromptPart]:
        return (PromptPart("You help."), PromptPart(self.memory, "memory/MEMORY.md"))

    def memory_text(self, session: Session) -> str | None:
        return self.memory if self.readable else None


class Bench:
    """A session and the builder of its prompts."""

    def __init__(
        self,
        folder: Path,
        *,
        image: Image | None = None,
        most: int = 30_000,
    ) -> None:
        self.pictures = Pictures(folder, image)
        self.clock = FakeClock(NOON)
        self.system = Instructions()
        self.manager = SessionManager(folder, self.clock)
        self.builder = ContextBuilder(
            self.system,
            self.clock,
            media=self.pictures,
            max_message_tokens=most,
        )
        self.session = Session("cli:direct", self.clock)

    def add(self, *messages: Message) -> None:
        for message in messages:
            self.session.add_message(message)
        self.session.apply_staged()

    def say(self, text: str) -> Message:
        return Message("user", text, self.clock.now())

    def turn(self, text: str, answer: str = "ok") -> None:
        self.add(self.say(text), Message("assistant", answer))

    def prompt(self, *new: Message) -> Prompt:
        return self.builder.build(self.session, new)


def extends(later: Prompt, earlier: Prompt) -> bool:
    """Whether a request begins with another one, all but the bracket that ends its messages."""
    same_tools = later.tools.wire == earlier.tools.wire
    return same_tools and later.wire_messages().startswith(earlier.wire_messages()[:-1])


def test_the_parts_of_the_system_prompt_come_in_order_with_a_rule_between(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert bench.prompt().messages[0].text == (
        f"You help.{SEPARATOR}- likes tea{SEPARATOR}Today is Sat 2026-11-21."
    )
    assert SEPARATOR == "\n\n---\n\n"


def test_a_system_prompt_is_encoded_once_for_all_chats_that_begin_with_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    other = Session("cli:other", bench.clock)
    system = bench.prompt().messages[0]
    assert bench.builder.build(other).messages[0] is system
    bench.system.memory = "- likes coffee"
    later = bench.builder.build(Session("cli:later", bench.clock)).messages[0]
    assert "likes coffee" in later.text
    assert bench.prompt().messages[0] is system


def test_a_persons_message_has_a_header_and_others_do_not(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    call = ToolCall("c1", "look", "{}")
    bench.add(
        bench.say("look\nhere"),
        Message("assistant", "", tool_calls=(call,)),
        Message("tool", "seen", tool_call_id="c1"),
        Message("user", "[image from look]", bench.clock.now(), origin="tool:look"),
        Message("user", "[nanobot: enough]", bench.clock.now(), origin="nanobot"),
        Message("assistant", "ok"),
    )
    assert [message.text for message in bench.prompt().messages[1:]] == [
        "[today, Sat 2026-11-21 12:00 +01:00, cli:direct]\nlook\nhere",
        "",
        "seen",
        "[image from look]",
        "[nanobot: enough]",
        "ok",
    ]


def test_what_a_message_was_told_of_memory_stands_behind_its_header_for_good(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    bench.prompt()
    bench.system.memory += "\n- has a cat"
    notice = bench.builder.news(bench.session)
    assert notice == '[memory changed: added "has a cat"]'
    assert bench.builder.news(bench.session) == notice, "it is told when a turn is stored"
    bench.add(
        Message("user", "hello", bench.clock.now(), notice=notice), Message("assistant", "hi")
    )
    bench.builder.commit_news(bench.session)
    assert bench.builder.news(bench.session) == ""
    assert bench.prompt().messages[1].text.endswith(f"cli:direct]\n{notice}\nhello")


def test_changes_of_memory_leave_the_system_prompt_alone_until_tomorrow(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    before = bench.prompt()
    bench.system.memory += "\n- has a cat"
    bench.turn("hello")
    assert extends(bench.prompt(), before)


async def test_a_new_day_begins_a_new_cache(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.turn("hello")
    bench.prompt()
    bench.system.memory += "\n- has a cat"
    await bench.clock.advance(DAY)
    messages = bench.prompt().messages
    assert "- has a cat" in messages[0].text
    assert messages[1].text.startswith("[yesterday, Sat 2026-11-21 12:00 +01:00, cli:direct]")
    assert bench.builder.news(bench.session) == "", "the system prompt says it"


def test_new_begins_a_new_cache_without_the_old_messages(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.turn("hello")
    bench.prompt()
    bench.system.memory += "\n- has a cat"
    bench.session.clear(7)
    bench.session.apply_staged()
    messages = bench.prompt(bench.say("again")).messages
    assert [message.role for message in messages] == ["system", "user"]
    assert "- has a cat" in messages[0].text


def test_undo_begins_a_new_cache_without_the_turn(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.turn("one")
    bench.add(Message("user", "two", turn_id="t2"), Message("assistant", "ok", turn_id="t2"))
    bench.prompt()
    bench.session.retract("t2")
    bench.session.apply_staged()
    first, second = bench.prompt().messages[1:]
    assert first.text.endswith("\none")
    assert second.text == "ok"


def test_images_are_sent_as_the_same_bytes_each_time(tmp_path: Path) -> None:
    bench = Bench(tmp_path, image=Image("abc", "image/png"))
    bench.add(Message("user", "what is this?", NOON, media=("a.png",)), Message("assistant", "?"))
    first = bench.prompt(bench.say("and now?"))
    assert b"data:image/png;base64,abc" in first.messages[1].wire
    bench.turn("and now?")
    assert bench.prompt().messages[1].wire == first.messages[1].wire


def test_pictures_of_another_conversation_are_rendered_again_as_they_were(tmp_path: Path) -> None:
    bench = Bench(tmp_path, image=Image("x" * 2_000, "image/png"))
    chats = [bench.session, Session("fake:2", bench.clock)]
    for chat, name in zip(chats, "ab", strict=True):
        chat.add_message(Message("user", "look", NOON, media=(name,)))
        chat.add_message(Message("assistant", "seen"))
        chat.apply_staged()
    prompts = [bench.builder.build(chat) for _ in range(2) for chat in chats for _ in range(2)]
    assert "".join(bench.pictures.asked) == "abab"
    assert [p.wire_messages() for p in prompts[:4]] == [p.wire_messages() for p in prompts[4:]]
    assert [p.tokens for p in prompts[:4]] == [p.tokens for p in prompts[4:]]


def test_a_long_message_is_shortened_in_the_prompt_and_not_in_storage(tmp_path: Path) -> None:
    bench = Bench(tmp_path, most=50)
    text = "begin " + "x" * 1_000 + " end"
    bench.turn(text)
    shown = bench.prompt().messages[1].text
    assert shown.partition("\n")[2].startswith("begin")
    assert shown.endswith("end")
    assert "910 characters left out" in shown
    assert bench.session.messages[0].content == text


def test_a_turn_whose_beginning_was_put_away_still_begins_with_a_user_message(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    calls = [ToolCall(f"c{number}", "look", "{}") for number in range(2)]
    steps = [
        message
        for call in calls
        for message in (
            Message("assistant", "", tool_calls=(call,)),
            Message("tool", "seen", tool_call_id=call.id),
        )
    ]
    bench.add(bench.say("look around"), *steps, Message("assistant", "done"))
    bench.session.mark_consolidated(3)
    messages = bench.prompt(bench.say("and?")).messages
    assert [m.role for m in messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]
    assert "consolidated into memory" in messages[1].text
    assert bench.builder.cache_of(bench.session).first == 4


def test_the_estimate_of_a_prompt_is_the_sum_of_its_parts(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.turn("hello there")
    new = bench.say("and now?")
    whole = bench.builder.tokens(bench.session, (new,))
    costs = [bench.builder.cost(bench.session, m) for m in (*bench.session.messages, new)]
    assert whole == bench.builder.build(bench.session, (new,)).tokens
    date_of_the_first = whole - bench.builder.count_fixed_tokens(bench.session) - sum(costs)
    assert 0 <= date_of_the_first < 20
    assert "and now?" in bench.builder.text(bench.session, (new,))


def test_memory_that_cannot_be_read_for_a_while_is_no_news(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.prompt()
    bench.system.readable = False
    assert bench.builder.news(bench.session) == ""
    bench.builder.commit_news(bench.session)
    bench.system.readable = True
    assert bench.builder.news(bench.session) == ""
    bench.system.memory += "\n- plays chess"
    assert "plays chess" in bench.builder.news(bench.session)


def test_each_conversation_has_the_system_prompt_of_its_own(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    mine, theirs = Instructions(), Instructions()
    theirs.memory = "- likes coffee"

    class Both(Instructions):
        def parts(self, session: Session) -> Sequence[PromptPart]:
            return self.of(session).parts(session)

        def memory_text(self, session: Session) -> str | None:
            return self.of(session).memory_text(session)

        def of(self, session: Session) -> Instructions:
            return mine if session.key == "cli:direct" else theirs

    builder = ContextBuilder(Both(), bench.clock)
    other = Session("fake:2", bench.clock)
    assert "likes tea" in builder.build(bench.session).messages[0].text
    assert "likes coffee" in builder.build(other).messages[0].text
    mine.memory = "- likes tea\n- plays chess"
    assert "plays chess" in builder.news(bench.session)
    assert builder.news(other) == ""


def test_what_was_forgotten_leaves_the_prompt_and_is_not_told(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.turn("hi")
    assert "likes tea" in bench.prompt().messages[0].text
    bench.system.memory = "- likes coffee"
    bench.system.forgotten += 1
    assert bench.builder.news(bench.session) == ""
    assert "likes tea" not in bench.prompt().messages[0].text
