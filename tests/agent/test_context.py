"""What the model reads, and that it stays the same byte for byte while it may."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from nanobot.agent.context import SEPARATOR, ContextBuilder, Part, pick_cut, shorten
from nanobot.agent.headers import Timestamps
from nanobot.agent.window import PromptWindow
from nanobot.messages import Message, ToolCall
from nanobot.providers.port import Image, Prompt, Toolset
from nanobot.session.manager import SessionManager
from nanobot.session.session import Session
from nanobot.testing import FakeClock

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=ZoneInfo("Europe/Berlin"))
DAY = 24 * 3600.0


class Instructions:
    """A system prompt with a memory that a test changes."""

    def __init__(self) -> None:
        self.memory = "- likes tea"

    def parts(self) -> Sequence[Part]:
        return (Part("You help."), Part(self.memory, "memory/MEMORY.md"))

    def memory_text(self) -> str:
        return self.memory


class Bench:
    """A session and the builder of its prompts."""

    def __init__(
        self,
        folder: Path,
        *,
        timestamps: Timestamps = "relative",
        image: Image | None = None,
        most: int = 30_000,
    ) -> None:
        self.clock = FakeClock(NOON)
        self.system = Instructions()
        self.manager = SessionManager(folder, self.clock)
        self.builder = ContextBuilder(
            self.system,
            Toolset((), b"[]"),
            self.clock,
            timestamps=timestamps,
            load_image=lambda _: image,
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
    assert bench.prompt().messages[0].text == f"You help.{SEPARATOR}- likes tea"
    assert SEPARATOR == "\n\n---\n\n"


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
    bench = Bench(tmp_path, timestamps="off")
    bench.prompt()
    bench.system.memory += "\n- has a cat"
    notice = bench.builder.news(bench.session)
    assert notice == '[memory changed: added "has a cat"]'
    assert bench.builder.news(bench.session) == notice, "it is told when a turn is stored"
    bench.add(
        Message("user", "hello", bench.clock.now(), notice=notice), Message("assistant", "hi")
    )
    bench.builder.told(bench.session)
    assert bench.builder.news(bench.session) == ""
    assert bench.prompt().messages[1].text == f"{notice}\nhello"


def test_changes_of_memory_leave_the_system_prompt_alone_until_tomorrow(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    before = bench.prompt()
    bench.system.memory += "\n- has a cat"
    bench.turn("hello")
    assert extends(bench.prompt(), before)


async def test_a_new_day_begins_a_new_epoch(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.turn("hello")
    bench.prompt()
    bench.system.memory += "\n- has a cat"
    await bench.clock.advance(DAY)
    messages = bench.prompt().messages
    assert "- has a cat" in messages[0].text
    assert messages[1].text.startswith("[yesterday, Sat 2026-11-21 12:00 +01:00, cli:direct]")
    assert bench.builder.news(bench.session) == "", "the system prompt says it"


def test_new_begins_a_new_epoch_without_the_old_messages(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.turn("hello")
    bench.prompt()
    bench.system.memory += "\n- has a cat"
    bench.session.clear(7)
    bench.session.apply_staged()
    messages = bench.prompt(bench.say("again")).messages
    assert [message.role for message in messages] == ["system", "user"]
    assert "- has a cat" in messages[0].text


def test_undo_begins_a_new_epoch_without_the_turn(tmp_path: Path) -> None:
    bench = Bench(tmp_path, timestamps="off")
    bench.turn("one")
    bench.add(Message("user", "two", turn_id="t2"), Message("assistant", "ok", turn_id="t2"))
    bench.prompt()
    bench.session.retract("t2")
    bench.session.apply_staged()
    assert [message.text for message in bench.prompt().messages[1:]] == ["one", "ok"]


def test_images_are_sent_as_the_same_bytes_each_time(tmp_path: Path) -> None:
    bench = Bench(tmp_path, image=Image("abc", "image/png"))
    bench.add(Message("user", "what is this?", NOON, media=("a.png",)), Message("assistant", "?"))
    first = bench.prompt(bench.say("and now?"))
    assert b"data:image/png;base64,abc" in first.messages[1].wire
    bench.turn("and now?")
    assert bench.prompt().messages[1].wire == first.messages[1].wire


def test_a_long_message_is_shortened_in_the_prompt_and_not_in_storage(tmp_path: Path) -> None:
    bench = Bench(tmp_path, timestamps="off", most=50)
    text = "begin " + "x" * 1_000 + " end"
    bench.turn(text)
    shown = bench.prompt().messages[1].text
    assert shown.startswith("begin")
    assert shown.endswith("end")
    assert "910 characters left out" in shown
    assert bench.session.messages[0].content == text


@given(st.text(), st.integers(1, 50))
def test_shortening_keeps_what_fits_and_both_ends_of_the_rest(text: str, limit: int) -> None:
    short = shorten(text, limit)
    if len(text) <= limit:
        assert short == text
    else:
        assert short.startswith(text[: limit * 3 // 4])
        assert short.endswith(text[len(text) - (limit - limit * 3 // 4) :])


COSTS = st.lists(st.tuples(st.integers(1, 100), st.booleans()), max_size=30)


@given(COSTS, st.integers(-10, 2_000), st.integers(1, 2_000))
def test_a_cut_falls_in_front_of_a_persons_message_or_behind_everything(
    messages: list[tuple[int, bool]], wanted: int, needed: int
) -> None:
    costs, persons = [c for c, _ in messages], [p for _, p in messages]
    cut = pick_cut(costs, persons, wanted, needed)
    assert 0 <= cut <= len(costs)
    if wanted <= 0:
        assert cut == 0
    elif costs:
        assert cut > 0, "progress is always made"
        assert cut == len(costs) or persons[cut]
        assert cut == len(costs) or sum(costs[:cut]) >= min(wanted, needed)


@given(COSTS, st.integers(1, 2_000))
def test_no_smaller_cut_would_have_done(messages: list[tuple[int, bool]], wanted: int) -> None:
    costs, persons = [c for c, _ in messages], [p for _, p in messages]
    cut = pick_cut(costs, persons, wanted, wanted)
    for smaller in range(1, cut):
        assert not (persons[smaller] and sum(costs[:smaller]) >= wanted)


TURNS = st.lists(st.tuples(st.integers(1, 4_000), st.integers(0, 3)), min_size=1, max_size=12)


@given(TURNS, st.integers(1, 3_000))
async def test_the_window_never_exceeds_the_budget_nor_parts_calls_from_results(
    turns: list[tuple[int, int]], coming: int
) -> None:
    bench = Bench(Path("unused"))
    window = PromptWindow(bench.builder, budget=2_000)
    for number, (size, calls) in enumerate(turns):
        bench.add(bench.say("words " * (size // 6)))
        for step in range(calls):
            call = ToolCall(f"c{number}-{step}", "look", "{}")
            bench.add(Message("assistant", "", tool_calls=(call,)))
            bench.add(Message("tool", "y " * (size // 4), tool_call_id=call.id))
        bench.add(Message("assistant", "ok"))
    new = bench.say("words " * (coming // 6))
    await window.maybe_consolidate_by_tokens(bench.session, (new,))
    assert bench.builder.tokens(bench.session, (new,)) <= 2_000
    messages = bench.prompt(new).messages[1:]
    assert messages[0].role == "user"
    called = [call.id for message in messages for call in message.tool_calls]
    assert called == [message.tool_call_id for message in messages if message.role == "tool"]


async def test_what_fits_is_left_alone(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.turn("hello")
    before = bench.prompt()
    await PromptWindow(bench.builder, budget=2_000).maybe_consolidate_by_tokens(bench.session)
    assert bench.prompt() == before


def test_shrinking_ends(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for number in range(40):
        bench.turn(f"message {number}")
    window = PromptWindow(bench.builder, budget=100_000)
    rounds = 0
    while window.shrink(bench.session):
        rounds += 1
    assert bench.builder.first_seq(bench.session) == bench.session.next_seq
    assert rounds < 10


async def test_what_was_left_out_stays_out_the_next_day(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for number in range(10):
        bench.turn(f"message {number}")
    PromptWindow(bench.builder, budget=100_000).shrink(bench.session)
    first = bench.builder.first_seq(bench.session)
    await bench.clock.advance(DAY)
    assert bench.builder.first_seq(bench.session) == first > 1
