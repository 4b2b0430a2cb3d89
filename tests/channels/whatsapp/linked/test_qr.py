"""QR codes in a terminal: a phone can read them."""

from __future__ import annotations

import segno

from nanobot_whatsapp.linked.login import Screen, drawn

DATA = "2@" + "kV3x" * 40 + ",abc=,def=,ghi="
"""As long as those of WhatsApp are."""


def modules(lines: tuple[str, ...], *, ink_is_dark: bool) -> list[list[bool]]:
    """Which modules are dark, row by row."""
    rows: list[list[bool]] = []
    for line in lines:
        rows.append([(char in "█▀") == ink_is_dark for char in line])
        rows.append([(char in "█▄") == ink_is_dark for char in line])
    return rows


def expected(data: str, margin: int) -> list[list[bool]]:
    code = segno.make_qr(data, error="l", boost_error=False)
    return [[bool(module) for module in row] for row in code.matrix_iter(border=margin)]


def test_every_module_is_drawn_in_its_colour_whatever_the_terminal_has() -> None:
    bare = tuple(
        line.removeprefix("\x1b[38;5;16;48;5;231m").removesuffix("\x1b[0m")
        for line in drawn(DATA, coloured=True)
    )
    wanted = expected(DATA, 2)
    assert modules(bare, ink_is_dark=True)[: len(wanted)] == wanted


def test_without_colours_it_is_drawn_for_a_dark_background_and_has_no_litter() -> None:
    lines = drawn(DATA, coloured=False)
    assert set("".join(lines)) <= set(" █▀▄")
    wanted = expected(DATA, 2)
    assert modules(lines, ink_is_dark=False)[: len(wanted)] == wanted


def test_it_fits_a_window_of_eighty_columns() -> None:
    assert len(drawn(DATA, coloured=False)[0]) <= 80


def test_on_a_terminal_the_next_code_takes_the_place_of_the_last() -> None:
    said: list[str] = []
    screen = Screen(said.append, is_terminal=True, size=lambda: (100, 50))
    screen.show(DATA)
    screen.show(DATA)
    assert not said[0].startswith("\x1b[3F")
    assert said[1] == f"\x1b[{said[0].count(chr(10)) + 1}F\x1b[J{said[0]}"
    screen.say("something else")
    screen.show(DATA)
    assert said[3] == said[0], "what stands between is not wiped away"


def test_elsewhere_it_is_printed_below() -> None:
    said: list[str] = []
    screen = Screen(said.append)
    screen.show(DATA)
    screen.show(DATA)
    assert said[0] == said[1]
    assert "\x1b" not in said[0]


def test_in_a_window_that_is_too_low_the_advice_is_the_last_thing_that_is_seen() -> None:
    said: list[str] = []
    screen = Screen(said.append, is_terminal=True, size=lambda: (80, 24))
    screen.show(DATA)
    screen.show(DATA)
    assert said[0] == said[2], "lines above the window cannot be wiped away"
    assert "▀" in said[0]
    assert "make the window larger" in said[1]
    assert "▀" not in said[1]


def test_in_a_window_that_is_too_narrow_the_code_waits_until_it_is_wider() -> None:
    said: list[str] = []
    width = 50
    screen = Screen(said.append, is_terminal=True, size=lambda: (width, 50))
    screen.show(DATA)
    screen.show(DATA)
    assert len(said) == 1, "the same is not said twice"
    assert "make the window larger" in said[0]
    assert "--pair-code" in said[0]
    assert "▀" not in said[0]
    width = 100
    screen.show(DATA)
    assert "▀" in said[1]
