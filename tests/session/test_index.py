"""Reading a few messages of a large file gives what reading all of it would give."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from nanobot.io import opened
from nanobot.messages import Message
from nanobot.session.jsonl_reader import NumberedLine, SeqIndex, load, numbered
from nanobot.session.records import Mark, Metadata, Record, Retraction, encode
from nanobot.session.session import Contents
from nanobot.testing.clock import DEFAULT_START
from tests.scratch import scratch

BLOCK = 64
"""Some files of these tests have a dozen blocks."""

NUMBERS = st.integers(1, 60)
TEXTS = st.text('ab"\\é\n', max_size=30)
LINES = st.one_of(
    st.builds(lambda text, seq: encode(Message("user", text, seq=seq)), TEXTS, NUMBERS),
    st.builds(lambda text: json.dumps({"role": "user", "content": text}) + "\n", TEXTS),
    st.builds(lambda one, two: encode(Retraction("", one, two, None)), NUMBERS, NUMBERS),
    st.builds(lambda seq, kept: encode(Mark(seq, kept, "7", "", None)), NUMBERS, st.booleans()),
    st.builds(lambda n: f'{{"_type": "metadata", "key": "k", "first_seq": {n}}}\n', NUMBERS),
    st.sampled_from(
        ['{"role": "user", "cont\n', '{"role": "system"}\n', "\n", "no JSON\r\n", "{}\n"]
    ),
)
FILES = st.lists(LINES, max_size=40).map("".join)


def wanted(lines: Sequence[NumberedLine], first: int, last: int) -> list[Record]:
    return [
        line.record
        for line in lines
        if isinstance(line.record, Retraction | Mark)
        or (isinstance(line.record, Message) and first <= line.record.seq <= last)
    ]


def agree(index: SeqIndex, path: Path, first: int, last: int) -> None:
    with opened(path) as descriptor:
        some = list(index.lines(path, descriptor, first, last))
        everything = list(numbered(descriptor))
    assert wanted(some, first, last) == wanted(everything, first, last)


@given(st.lists(st.tuples(FILES, st.booleans(), NUMBERS, NUMBERS), min_size=1, max_size=4))
def test_whatever_is_in_the_file_and_whatever_is_done_to_it(
    steps: list[tuple[str, bool, int, int]],
) -> None:
    """The file grows, or is written anew in its place."""
    with scratch() as folder:
        index, path = SeqIndex(BLOCK), folder / "one.jsonl"
        for at, (text, grows, first, last) in enumerate(steps):
            with path.open("a" if grows else "w") as file:
                file.write(text)
            os.utime(path, ns=(at, at))
            agree(index, path, first, last)
            agree(index, path, 1, 60)


def test_a_line_that_was_cut_short_is_read_once_it_is_whole(tmp_path: Path) -> None:
    index, path = SeqIndex(BLOCK), tmp_path / "one.jsonl"
    lines = [encode(Message("user", f"text {seq}", seq=seq)) for seq in range(1, 101)]
    for cut in (3_000, 3_001, 3_050):
        path.write_text("".join(lines)[:cut])
        agree(index, path, 40, 60)
        with path.open("a") as file:
            file.write("".join(lines)[cut:])
        agree(index, path, 40, 60)
        agree(index, path, 95, 200)


def test_of_a_large_file_little_is_read(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    path.write_text("".join(encode(Message("user", "x", seq=seq)) for seq in range(1, 5_001)))
    with opened(path) as descriptor:
        lines = list(SeqIndex(BLOCK).lines(path, descriptor, 2_000, 2_010))
    assert len(lines) < 20


def test_of_many_large_files_little_is_read_once_they_are_known(tmp_path: Path) -> None:
    """A long conversation has dozens of archived segments, and each is asked."""
    first = tmp_path / "0.jsonl"
    first.write_text("".join(encode(Message("user", "x" * 500, seq=n)) for n in range(1, 600)))
    paths = [first, *(tmp_path / f"{number}.jsonl" for number in range(1, 60))]
    for path in paths[1:]:
        path.hardlink_to(first)
    index = SeqIndex()

    def bytes_read() -> int:
        """To find the same few messages in every file."""
        before = read_so_far()
        for path in paths:
            with opened(path) as descriptor:
                assert list(index.lines(path, descriptor, 300, 301))
        return read_so_far() - before

    assert bytes_read() > 60 * first.stat().st_size
    assert bytes_read() < 60 * first.stat().st_size / 3


def test_of_a_file_without_numbers_what_is_consolidated_is_read_once(tmp_path: Path) -> None:
    path, index = tmp_path / "one.jsonl", SeqIndex()
    said = [
        json.dumps({"role": "user", "content": f"{n} {'x' * 500}"}) + "\n" for n in range(4_000)
    ]
    header = Metadata("k", DEFAULT_START, DEFAULT_START, last_consolidated=3_900, first_seq=1)
    path.write_text("".join([*said, encode(header)]))

    def opened_anew() -> tuple[Contents, int]:
        before = read_so_far()
        contents, _ = load(path, 0, DEFAULT_START, index)
        return contents, read_so_far() - before

    first, everything = opened_anew()
    again, little = opened_anew()
    assert [message.content[:4] for message in first.messages] == [
        str(n) for n in range(3_900, 4_000)
    ]
    assert first.next_seq == 4_001
    assert again == first
    assert little < everything / 4


def read_so_far() -> int:
    """How many bytes this process has read."""
    return int(Path("/proc/self/io").read_text().split()[1])
