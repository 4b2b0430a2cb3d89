"""Progress: in order within a chat, and never blocking."""

from __future__ import annotations

import asyncio

from nanobot.agent.session_queue import Screen
from nanobot.bus.events import Progress, TextDelta, ToolOutput, TurnEnded
from nanobot.testing.channel import FakeChannel


class HeldChannel(FakeChannel):
    """A channel that blocks in the chat "slow" until released."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()

    async def show_progress(self, event: Progress) -> None:
        if event.chat_id == "slow":
            await self.gate.wait()
        await super().show_progress(event)


def delta(text: str, chat_id: str = "1", turn_id: str = "t1", restart: bool = False) -> TextDelta:
    return TextDelta("fake", chat_id, turn_id, text, restart)


def end_of_turn(chat_id: str = "1") -> TurnEnded:
    return TurnEnded("fake", chat_id, "t1", (), "done")


async def test_events_of_a_chat_are_shown_in_order() -> None:
    channel = FakeChannel()
    screen = Screen({"fake": channel})
    events: list[Progress] = [
        *(delta("x", turn_id=f"t{number}") for number in range(50)),
        end_of_turn(),
    ]
    for event in events:
        screen.show_progress(event)
    await screen.flush("fake", "1")
    assert channel.shown == events
    await screen.close()


async def test_text_that_comes_at_once_is_shown_at_once_and_in_its_place() -> None:
    channel = FakeChannel()
    screen = Screen({"fake": channel})
    output = ToolOutput("fake", "1", "t1", "done")
    for event in (
        delta("I look"),
        delta(" it up."),
        output,
        delta("It "),
        delta("is "),
        delta("4."),
    ):
        screen.show_progress(event)
    await screen.flush("fake", "1")
    assert channel.shown == [delta("I look it up."), output, delta("It is 4.")]
    await screen.close()


async def test_text_that_is_void_before_it_is_shown_is_never_shown() -> None:
    channel = FakeChannel()
    screen = Screen({"fake": channel})
    for event in (delta("void"), delta("what ", restart=True), delta("holds")):
        screen.show_progress(event)
    await screen.flush("fake", "1")
    assert channel.shown == [delta("what holds", restart=True)]
    await screen.close()


async def test_text_is_shown_though_nothing_comes_after_it() -> None:
    shown = asyncio.Event()

    class WatchedChannel(FakeChannel):
        async def show_progress(self, event: Progress) -> None:
            assert event == delta("text")
            shown.set()

    screen = Screen({"fake": WatchedChannel()})
    screen.show_progress(delta("text"))
    await asyncio.wait_for(shown.wait(), 5)
    await screen.close()


async def test_a_chat_that_is_slow_to_show_holds_up_no_other() -> None:
    channel = HeldChannel()
    screen = Screen({"fake": channel}, timeout=3600)
    screen.show_progress(delta("slow", "slow"))
    screen.show_progress(delta("quick"))
    await asyncio.wait_for(screen.flush("fake", "1"), 5)
    assert channel.shown == [delta("quick")]
    await screen.close()


async def test_flush_waits_for_what_is_being_shown_and_not_for_ever() -> None:
    channel = HeldChannel()
    screen = Screen({"fake": channel}, timeout=0.02)
    screen.show_progress(delta("text", "slow"))
    await asyncio.sleep(0)
    await asyncio.wait_for(screen.flush("fake", "slow"), 5)
    assert channel.shown == []
    await screen.close()

    screen = Screen({"fake": channel}, timeout=3600)
    screen.show_progress(delta("text", "slow"))
    await asyncio.sleep(0)
    flushing = asyncio.get_running_loop().create_task(screen.flush("fake", "slow"))
    await asyncio.sleep(0)
    assert not flushing.done()
    channel.gate.set()
    await asyncio.wait_for(flushing, 5)
    assert channel.shown == [delta("text", "slow")]
    await screen.close()


async def test_text_beyond_the_backlog_is_left_out_and_the_end_of_a_turn_never_is() -> None:
    channel = HeldChannel()
    screen = Screen({"fake": channel}, timeout=3600)
    for number in range(5_000):
        screen.show_progress(delta("x", "slow", f"t{number}"))
    screen.show_progress(end_of_turn("slow"))
    channel.gate.set()
    await screen.flush("fake", "slow")
    assert len(channel.shown) < 1_100
    assert channel.shown[-1] == end_of_turn("slow")
    await screen.close()


async def test_an_event_that_cannot_be_shown_does_not_stop_the_next() -> None:
    class BrokenChannel(FakeChannel):
        async def show_progress(self, event: Progress) -> None:
            if isinstance(event, ToolOutput) and event.text == "bad":
                raise LookupError("broken")
            if isinstance(event, ToolOutput) and event.text == "hangs":
                await asyncio.Event().wait()
            await super().show_progress(event)

    channel = BrokenChannel()
    screen = Screen({"fake": channel}, timeout=0.01)
    for text in ("bad", "hangs", "good"):
        screen.show_progress(ToolOutput("fake", "1", "t1", text))
    screen.show_progress(end_of_turn())
    while end_of_turn() not in channel.shown:
        await screen.flush("fake", "1")
    assert channel.shown == [ToolOutput("fake", "1", "t1", "good"), end_of_turn()]
    await screen.close()


async def test_events_of_a_channel_that_is_off_are_dropped() -> None:
    screen = Screen({})
    screen.show_progress(delta("text"))
    await screen.flush("fake", "1")
    await screen.close()
