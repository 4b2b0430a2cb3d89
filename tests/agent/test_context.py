"""The prompt, and that it stays the same byte for byte while it may."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from nanobot.agent.media import MediaStore
from nanobot.agent.prompt import SEPARATOR, ContextBuilder, PromptPart, ScopedSources
from nanobot.memory.scopes import OWNER
from nanobot.messages import Attachment, Message, ToolCall
from nanobot.providers.port import Image, Prompt, Toolset
from nanobot.session.manager import SessionManager
from nanobot.session.session import Session
from nanobot.testing import FakeClock

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=ZoneInfo("Europe/Berlin"))
DAY = 24 * 3600.0


class Pictures(MediaStore):
    """Has the same image under every name, and records the names."""

    def __init__(self, folder: Path, image: Image | None) -> None:
        super().__init__(folder)
        self.asked: list[str] = []
        self._image = image

    def image(self, name: str) -> Image | None:
        self.asked.append(name)
        return self._image


class Instructions(ScopedSources):
    """A system prompt with a memory that a test changes."""

    forget_count = 0

    def __init__(self) -> None:
        self.memory = "- likes tea"
        self.readable = True

    def scope_of(self, session: Session) -> str:
        return OWNER

    def tools(self, scope: str) -> Toolset:
        return Toolset((), b"[]")

    def parts(self, scope: str, memory: str | None) -> Sequence[PromptPart]:
        return (PromptPart("You help."), PromptPart(self.memory, "memory/MEMORY.md"))

    def memory_text(self, scope: str) -> str | None:
        return self.memory if self.readable else None


class PromptKit:
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
    """Check whether a request begins with another one, except for the bracket that ends its
    messages."""
    same_tools = later.tools.wire == earlier.tools.wire
    return same_tools and later.wire_messages().startswith(earlier.wire_messages()[:-1])


def test_the_parts_of_the_system_prompt_come_in_order_with_a_rule_between(tmp_path: Path) -> None:
    kit = PromptKit(tmp_path)
    assert kit.prompt().messages[0].text == (
        f"You help.{SEPARATOR}- likes tea{SEPARATOR}Today is Sat 2026-11-21."
    )
    assert SEPARATOR == "\n\n---\n\n"


def test_a_system_prompt_is_encoded_once_for_all_chats_that_begin_with_it(tmp_path: Path) -> None:
    kit = PromptKit(tmp_path)
    other = Session("cli:other", kit.clock)
    system = kit.prompt().messages[0]
    assert kit.builder.build(other).messages[0] is system
    kit.system.memory = "- likes coffee"
    later = kit.builder.build(Session("cli:later", kit.clock)).messages[0]
    assert "likes coffee" in later.text
    assert kit.prompt().messages[0] is system


def test_a_persons_message_has_a_header_and_others_do_not(tmp_path: Path) -> None:
    kit = PromptKit(tmp_path)
    call = ToolCall("c1", "look", "{}")
    kit.add(
        kit.say("look\nhere"),
        Message("assistant", "", tool_calls=(call,)),
        Message("tool", "seen", tool_call_id="c1"),
        Message("user", "[image from look]", kit.clock.now(), origin="tool:look"),
        Message("user", "[nanobot: enough]", kit.clock.now(), origin="nanobot"),
        Message("assistant", "ok"),
    )
    assert [message.text for message in kit.prompt().messages[1:]] == [
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
    kit = PromptKit(tmp_path)
    kit.prompt()
    kit.system.memory += "\n- has a cat"
    notice = kit.builder.news(kit.session)
    assert notice == '[memory changed: added "has a cat"]'
    assert kit.builder.news(kit.session) == notice, "it is told when a turn is stored"
    kit.add(Message("user", "hello", kit.clock.now(), notice=notice), Message("assistant", "hi"))
    kit.builder.commit_news(kit.session)
    assert kit.builder.news(kit.session) == ""
    assert kit.prompt().messages[1].text.endswith(f"cli:direct]\n{notice}\nhello")


def test_changes_of_memory_leave_the_system_prompt_alone_until_tomorrow(tmp_path: Path) -> None:
    kit = PromptKit(tmp_path)
    before = kit.prompt()
    kit.system.memory += "\n- has a cat"
    kit.turn("hello")
    assert extends(kit.prompt(), before)


async def test_a_new_day_begins_a_new_cache(tmp_path: Path) -> None:
    kit = PromptKit(tmp_path)
    kit.turn("hello")
    kit.prompt()
    kit.system.memory += "\n- has a cat"
    await kit.clock.advance(DAY)
    messages = kit.prompt().messages
    assert "- has a cat" in messages[0].text
    assert messages[1].text.startswith("[yesterday, Sat 2026-11-21 12:00 +01:00, cli:direct]")
    assert kit.builder.news(kit.session) == "", "the system prompt says it"


def test_new_begins_a_new_cache_without_the_old_messages(tmp_path: Path) -> None:
    kit = PromptKit(tmp_path)
    kit.turn("hello")
    kit.prompt()
    kit.system.memory += "\n- has a cat"
    kit.session.clear(7)
    kit.session.apply_staged()
    messages = kit.prompt(kit.say("again")).messages
    assert [message.role for message in messages] == ["system", "user"]
    assert "- has a cat" in messages[0].text


def test_undo_begins_a_new_cache_without_the_turn(tmp_path: Path) -> None:
    kit = PromptKit(tmp_path)
    kit.turn("one")
    kit.add(Message("user", "two", turn_id="t2"), Message("assistant", "ok", turn_id="t2"))
    kit.prompt()
    kit.session.retract("t2")
    kit.session.apply_staged()
    first, second = kit.prompt().messages[1:]
    assert first.text.endswith("\none")
    assert second.text == "ok"


def test_images_are_sent_as_the_same_bytes_each_time(tmp_path: Path) -> None:
    kit = PromptKit(tmp_path, image=Image("abc", "image/png"))
    kit.add(
        Message("user", "what is this?", NOON, media=(Attachment("a.png"),)),
        Message("assistant", "?"),
    )
    first = kit.prompt(kit.say("and now?"))
    assert b"data:image/png;base64,abc" in first.messages[1].wire
    kit.turn("and now?")
    assert kit.prompt().messages[1].wire == first.messages[1].wire


def test_pictures_of_another_conversation_are_rendered_again_as_they_were(tmp_path: Path) -> None:
    kit = PromptKit(tmp_path, image=Image("x" * 2_000, "image/png"))
    chats = [kit.session, Session("fake:2", kit.clock)]
    for chat, name in zip(chats, "ab", strict=True):
        chat.add_message(Message("user", "look", NOON, media=(Attachment(name),)))
        chat.add_message(Message("assistant", "seen"))
        chat.apply_staged()
    prompts = [kit.builder.build(chat) for _ in range(2) for chat in chats for _ in range(2)]
    assert "".join(kit.pictures.asked) == "abab"
    assert [p.wire_messages() for p in prompts[:4]] == [p.wire_messages() for p in prompts[4:]]
    assert [p.tokens for p in prompts[:4]] == [p.tokens for p in prompts[4:]]


def test_a_long_message_is_shortened_in_the_prompt_and_not_in_storage(tmp_path: Path) -> None:
    kit = PromptKit(tmp_path, most=50)
    text = "begin " + "x" * 1_000 + " end"
    kit.turn(text)
    shown = kit.prompt().messages[1].text
    assert shown.partition("\n")[2].startswith("begin")
    assert shown.endswith("end")
    assert "910 characters left out" in shown
    assert kit.session.messages[0].content == text


def test_a_turn_whose_beginning_was_put_away_still_begins_with_a_user_message(
    tmp_path: Path,
) -> None:
    kit = PromptKit(tmp_path)
    calls = [ToolCall(f"c{number}", "look", "{}") for number in range(2)]
    steps = [
        message
        for call in calls
        for message in (
            Message("assistant", "", tool_calls=(call,)),
            Message("tool", "seen", tool_call_id=call.id),
        )
    ]
    kit.add(kit.say("look around"), *steps, Message("assistant", "done"))
    kit.session.mark_consolidated(3)
    messages = kit.prompt(kit.say("and?")).messages
    assert [m.role for m in messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]
    assert "consolidated into memory" in messages[1].text
    assert kit.builder.cache_of(kit.session).first == 4


def test_the_estimate_of_a_prompt_is_the_sum_of_its_parts(tmp_path: Path) -> None:
    kit = PromptKit(tmp_path)
    kit.turn("hello there")
    new = kit.say("and now?")
    whole = kit.builder.tokens(kit.session, (new,))
    costs = [kit.builder.cost(kit.session, m) for m in (*kit.session.messages, new)]
    assert whole == kit.builder.build(kit.session, (new,)).tokens
    date_of_the_first = whole - kit.builder.count_fixed_tokens(kit.session) - sum(costs)
    assert 0 <= date_of_the_first < 20
    assert "and now?" in kit.builder.text(kit.session, (new,))


def test_memory_that_cannot_be_read_for_a_while_is_no_news(tmp_path: Path) -> None:
    kit = PromptKit(tmp_path)
    kit.prompt()
    kit.system.readable = False
    assert kit.builder.news(kit.session) == ""
    kit.builder.commit_news(kit.session)
    kit.system.readable = True
    assert kit.builder.news(kit.session) == ""
    kit.system.memory += "\n- plays chess"
    assert "plays chess" in kit.builder.news(kit.session)


def test_each_conversation_has_the_system_prompt_of_its_own(tmp_path: Path) -> None:
    kit = PromptKit(tmp_path)
    mine, theirs = Instructions(), Instructions()
    theirs.memory = "- likes coffee"

    class Both(Instructions):
        def scope_of(self, session: Session) -> str:
            return OWNER if session.key == "cli:direct" else "people/fake_2"

        def parts(self, scope: str, memory: str | None) -> Sequence[PromptPart]:
            return self.of(scope).parts(scope, memory)

        def memory_text(self, scope: str) -> str | None:
            return self.of(scope).memory_text(scope)

        def of(self, scope: str) -> Instructions:
            return mine if scope == OWNER else theirs

    builder = ContextBuilder(Both(), kit.clock)
    other = Session("fake:2", kit.clock)
    assert "likes tea" in builder.build(kit.session).messages[0].text
    assert "likes coffee" in builder.build(other).messages[0].text
    mine.memory = "- likes tea\n- plays chess"
    assert "plays chess" in builder.news(kit.session)
    assert builder.news(other) == ""


def test_what_was_forgotten_leaves_the_prompt_and_is_not_told(tmp_path: Path) -> None:
    kit = PromptKit(tmp_path)
    kit.turn("hi")
    assert "likes tea" in kit.prompt().messages[0].text
    kit.system.memory = "- likes coffee"
    kit.system.forget_count += 1
    assert kit.builder.news(kit.session) == ""
    assert "likes tea" not in kit.prompt().messages[0].text
