"""QR codes in a terminal: a phone can read them."""

from __future__ import annotations

import segno

from nanobot_whatsapp.linked.login import draw_qr

DATA = "2@" + "kV3x" * 40 + ",abc=,def=,ghi="
"""As long as WhatsApp's codes."""


def modules(lines: tuple[str, ...], *, ink_is_dark: bool) -> list[list[bool]]:
    """Return the dark modules, row by row."""
    rows: list[list[bool]] = []
    for line in lines:
        rows.append([(char in "█▀") == ink_is_dark for char in line])
        rows.append([(char in "█▄") == ink_is_dark for char in line])
    return rows


def expect_modules(data: str, margin: int) -> list[list[bool]]:
    code = segno.make_qr(data, error="l", boost_error=False)
    return [[bool(module) for module in row] for row in code.matrix_iter(border=margin)]


def test_every_module_is_drawn_in_its_colour_whatever_the_terminal_has() -> None:
    bare = tuple(
        line.removeprefix("\x1b[38;5;16;48;5;231m").removesuffix("\x1b[0m")
        for line in draw_qr(DATA, coloured=True).splitlines()
    )
    wanted = expect_modules(DATA, 2)
    assert modules(bare, ink_is_dark=True)[: len(wanted)] == wanted


def test_without_colours_it_is_drawn_for_a_dark_background_and_has_no_litter() -> None:
    lines = tuple(draw_qr(DATA, coloured=False).splitlines())
    assert set("".join(lines)) <= set(" █▀▄")
    wanted = expect_modules(DATA, 2)
    assert modules(lines, ink_is_dark=False)[: len(wanted)] == wanted


def test_it_fits_a_window_of_eighty_columns() -> None:
    assert len(draw_qr(DATA, coloured=False).splitlines()[0]) <= 80
