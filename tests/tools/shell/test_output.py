"""Kept and shown output."""

from __future__ import annotations

from nanobot.testing import FakeClock
from nanobot.tools.shell.process import Output


def plain(*parts: bytes) -> str:
    output = Output(FakeClock())
    for part in parts:
        output.feed(part)
    output.feed(b"", final=True)
    return output.take_unread()


def test_output_is_plain_text_wherever_it_was_cut() -> None:
    printed = (
        "\x1b[1;31mrot\x1b[0m \x1b]8;;http://x\x1b\\link\x1b]8;;\x07 käse € 🧀\r\n"
        "10%\r20%\rdone\a\b\x9b\x1b(B\x1b7\n"
    ).encode() + b"\xff\n\x1b"
    text = "rot link käse € 🧀\n10%\n20%\ndone\n\ufffd\n"
    for cut in range(len(printed) + 1):
        for again in range(cut, len(printed) + 1, 7):
            assert plain(printed[:cut], printed[cut:again], printed[again:]) == text


def test_a_flood_of_what_is_taken_out_leaves_the_text() -> None:
    for flood in (b"\0\x18", b"\x07", b"\x1b", b"\xc2\x9b", b"\x1b[m", b"\x1b]x\x07"):
        assert plain(flood * 500 + b"one\n" + flood * 500 + b"\ntwo") in (
            "one\n\ntwo",
            "ne\n\ntwo",  # `ESC o` is an order
        )


def test_the_beginning_and_the_end_are_kept_and_the_middle_is_counted() -> None:
    for size in (1, 7, 64, 1_000):
        output = Output(FakeClock(), kept=10)
        whole = "".join(chr(ord("a") + n % 26) for n in range(1_000))
        for start in range(0, len(whole), size):
            output.feed(whole[start : start + size].encode())
        note = "\n[… 980 characters omitted …]\n"
        assert output.take_unread() == f"{whole[:10]}{note}{whole[-10:]}"
        assert output.take_unread() == ""
        output.feed(b"x" * 20)
        assert output.take_unread() == "x" * 20


def test_only_whole_lines_are_shown_until_the_end() -> None:
    shown: list[str] = []
    output = Output(FakeClock(), shown.append)
    for piece in (b"api", b"-key", b"\nsecond", b" line\nthi", b"rd"):
        output.feed(piece)
    assert shown == ["api-key\n", "second line\n"]
    output.feed(b"", final=True)
    assert shown[-1] == "third"


async def test_a_flood_is_shown_at_a_pace_that_a_screen_can_follow() -> None:
    shown: list[str] = []
    clock = FakeClock()
    output = Output(clock, shown.append)
    for _ in range(100):
        output.feed(b"x" * 99 + b"\n")
    assert sum(map(len, shown)) == 4_000
    await clock.advance(1)
    output.feed(b"after\n")
    assert shown[-1] == "[… 6,000 characters omitted …]\nafter\n"
