"""What is kept and shown of an output."""

from __future__ import annotations

from nanobot.tasks import Background
from nanobot.testing import FakeClock
from nanobot.tools.shell.process import Output, PlainText, ReadRate, Showing


def test_output_is_plain_text_wherever_it_was_cut() -> None:
    printed = (
        "\x1b[1;31mrot\x1b[0m \x1b]8;;http://x\x1b\\link\x1b]8;;\x07 käse € 🧀\r\n"
        "10%\r20%\rdone\a\b\x9b\x1b(B\x1b7\n"
    ).encode() + b"\xff\n\x1b"
    plain = "rot link käse € 🧀\n10%\n20%\ndone\n\ufffd\n"
    for cut in range(len(printed) + 1):
        for again in range(cut, len(printed) + 1, 7):
            text = PlainText()
            parts = (printed[:cut], printed[cut:again], printed[again:])
            assert "".join(map(text.feed, parts)) + text.end() == plain


def test_a_flood_of_what_is_taken_out_leaves_the_text() -> None:
    for flood in (b"\0\x18", b"\x07", b"\x1b", b"\xc2\x9b", b"\x1b[m", b"\x1b]x\x07"):
        text = PlainText()
        assert text.feed(flood * 500 + b"one\n" + flood * 500 + b"\ntwo") + text.end() in (
            "one\n\ntwo",
            "ne\n\ntwo",  # `ESC o` is an order
        )


async def test_all_that_is_printed_is_read_at_one_pace() -> None:
    clock = FakeClock()
    rate = ReadRate(clock, per_second=100, at_once=1_000)
    await rate.keep(1_000)
    waiting = [Background().start(rate.keep(50)) for _ in range(2)]
    await clock.until_sleeping(2)
    await clock.advance(0.5)
    await waiting[0]
    assert not waiting[1].done()
    await clock.advance(0.5)
    await waiting[1]


def test_an_order_without_end_is_not_waited_for() -> None:
    text = PlainText()
    shown = sum(len(text.feed(b"\x1b]" + b"x" * 1_000)) for _ in range(10))
    assert shown > 5_000


def test_the_beginning_and_the_end_are_kept_and_the_middle_is_counted() -> None:
    for size in (1, 7, 64, 1_000):
        output = Output(kept=10)
        whole = "".join(chr(ord("a") + n % 26) for n in range(1_000))
        for start in range(0, len(whole), size):
            output.add(whole[start : start + size])
        note = "\n[… 980 characters are left out here …]\n"
        assert output.take() == f"{whole[:10]}{note}{whole[-10:]}"
        assert not output
        output.add("x" * 20)
        assert output.take() == "x" * 20


async def test_only_whole_lines_are_shown_until_the_end() -> None:
    shown: list[str] = []
    showing = Showing(shown.append, FakeClock())
    for piece in ("api", "-key", "\nsecond", " line\nthi", "rd"):
        showing.add(piece)
    assert shown == ["api-key\n", "second line\n"]
    showing.end()
    assert shown[-1] == "third"


async def test_a_flood_is_shown_at_a_pace_that_a_screen_can_follow() -> None:
    shown: list[str] = []
    clock = FakeClock()
    showing = Showing(shown.append, clock)
    for _ in range(100):
        showing.add("x" * 99 + "\n")
    assert sum(map(len, shown)) == 4_000
    await clock.advance(1)
    showing.add("after\n")
    assert shown[-1] == "[… 6,000 characters are not shown …]\nafter\n"
