"""A text is found in files of any size, while they change, and without keeping others waiting."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.memory.forgetting.holdings import Home, cover
from nanobot.memory.forgetting.needle import BLOCK, LONGEST, Needle, count_in, matches

SECRET = "Zoë Qopuvi"


@pytest.mark.parametrize("at", range(BLOCK - 16, BLOCK + 3))
def test_a_text_is_found_across_the_edge_of_a_block(at: int) -> None:
    data = bytes(at) + SECRET.encode() + bytes(BLOCK)
    assert count_in(data, Needle(SECRET)) == 1


@pytest.mark.parametrize("at", [BLOCK - LONGEST - 16, BLOCK - 3, BLOCK - 1, BLOCK])
@pytest.mark.parametrize("text", ["Ann", "a_b_c"])
def test_a_short_text_is_a_word_of_its_own_across_the_edge_too(at: int, text: str) -> None:
    needle, rest = Needle(text), b"." * BLOCK
    assert count_in(b"." * at + text.encode() + rest, needle) == 1
    assert count_in(b"." * at + b"x" + text.encode() + rest, needle) == 0
    assert count_in(b"." * at + text.encode() + b"x" + rest, needle) == 0


@given(st.lists(st.integers(0, 3 * BLOCK), max_size=8))
def test_blocks_find_what_one_search_finds(places: list[int]) -> None:
    data = bytearray(3 * BLOCK + 100)
    for at in places:
        data[at : at + 11] = SECRET.encode()
    needle, whole = Needle(SECRET), bytes(data)
    found = matches(lambda position, size: whole[position : position + size], needle)
    assert [(at, at + len(form)) for at, form in found] == list(needle.spans(whole))


def test_no_search_is_longer_than_a_block_and_what_is_kept_of_the_one_before() -> None:
    longest = 0

    class Watched(Needle):
        def spans(self, data: bytes, begin: int = 0) -> Iterator[tuple[int, int]]:
            nonlocal longest
            longest = max(longest, len(data))
            return super().spans(data, begin)

    count_in(bytes(10 * BLOCK), Watched(SECRET))
    assert longest < 2 * BLOCK


def test_a_file_may_be_cut_short_while_it_is_read() -> None:
    blocks = [SECRET.encode() + bytes(BLOCK), b""]
    found = list(matches(lambda position, size: blocks.pop(0), Needle(SECRET)))
    assert [at for at, _ in found] == [0]


def test_what_was_cut_short_is_not_made_longer_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "nanobot.log"
    path.write_bytes(b"." * BLOCK + SECRET.encode())
    pread = os.pread

    def cutting(descriptor: int, size: int, position: int) -> bytes:
        data = pread(descriptor, size, position)
        if not data:  # it was read to the end
            os.truncate(path, 0)
        return data

    monkeypatch.setattr(os, "pread", cutting)
    cover(path, Needle(SECRET))
    assert path.stat().st_size == 0


def test_a_large_file_is_searched_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "nanobot.log"
    path.parent.mkdir()
    path.write_bytes(f"{SECRET}\n".encode() * 100_000)
    (held,) = Home(tmp_path, tmp_path / "workspace").holdings(Needle(SECRET))
    assert held.count == 100_000
    assert held.is_text
    cover(path, Needle(SECRET))
    assert path.read_bytes() == b"[erased]***\n" * 100_000
