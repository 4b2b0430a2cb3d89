"""A text is found in files of any size, and logs keep their length."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanobot.memory.erase import Home, erase_from
from nanobot.memory.matcher import ERASED, LONGEST, TextMatcher

SECRET = "Zoë Qopuvi"
BLOCK = 256 * 1024


def contains(folder: Path, content: bytes, text: str = SECRET) -> bool:
    (folder / "spill").mkdir(exist_ok=True)
    (folder / "spill" / "a.txt").write_bytes(content)
    return bool(Home(folder, folder / "workspace").occurrences(TextMatcher(text)))


@pytest.mark.parametrize("at", range(BLOCK - 16, BLOCK + 3, 2))
def test_a_text_is_found_across_the_edge_of_a_block(tmp_path: Path, at: int) -> None:
    assert contains(tmp_path, b"." * at + SECRET.encode() + b"." * BLOCK)


@pytest.mark.parametrize("at", [BLOCK - 4 * LONGEST - 1, BLOCK - 4 * LONGEST, BLOCK - 3, BLOCK])
@pytest.mark.parametrize("text", ["Ann", "a_b_c"])
def test_a_short_text_is_a_word_of_its_own_across_the_edge_too(
    tmp_path: Path, at: int, text: str
) -> None:
    rest = b"." * BLOCK
    assert contains(tmp_path, b"." * at + text.encode() + rest, text)
    assert not contains(tmp_path, b"." * (at - 1) + b"x" + text.encode() + rest, text)
    assert not contains(tmp_path, b"." * at + text.encode() + b"x" + rest, text)


@settings(max_examples=6)
@given(st.lists(st.integers(0, 20), max_size=8), st.sampled_from(["\n", " ", "x", "\\u00fc"]))
def test_a_long_text_loses_every_one_and_nothing_else(places: list[int], filler: str) -> None:
    pieces = [filler * LONGEST] * 20
    for at in places:
        pieces.insert(at, f" {SECRET} ")
    redacted = TextMatcher(SECRET).redact_plain("".join(pieces))
    pieces = [piece.replace(SECRET, ERASED) for piece in pieces]
    assert redacted == "".join(pieces)


@pytest.mark.parametrize("at", range(BLOCK - 16, BLOCK + 3, 2))
def test_nothing_is_left_and_nothing_else_goes_at_the_edge_of_a_piece(at: int) -> None:
    before, after = "." * at, f" {SECRET}!" + "." * BLOCK + f"\n{SECRET}"
    redacted = TextMatcher(SECRET).redact_plain(f"{before}{SECRET}{after}")
    assert redacted == f"{before}{ERASED}{after.replace(SECRET, ERASED)}"
    short = f"{before}x{SECRET[:3]} {SECRET[:3]}x {SECRET[:3]} {SECRET[:3]}"
    redacted = TextMatcher(SECRET[:3]).redact_plain(short)
    assert redacted == f"{before}x{SECRET[:3]} {SECRET[:3]}x {ERASED} {ERASED}"


def test_a_large_log_keeps_its_length(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "nanobot.log"
    path.parent.mkdir()
    path.write_bytes(f"{SECRET} {json.dumps(SECRET)}\n".encode() * 4_000)
    size = path.stat().st_size
    matcher = TextMatcher(SECRET)
    (found,) = Home(tmp_path, tmp_path / "workspace").occurrences(matcher)
    erase_from(found, matcher)
    assert path.stat().st_size == size
    assert path.read_bytes() == b'[erased]*** "[erased]*******"\n' * 4_000
