"""Where in a large session file which messages stand, so that a few are read without all the rest.

The index of a file is a list of blocks, each of which says where it begins, which number was the
last before it, and which numbers are in it. It is made in one pass when messages of the file are
first asked for, kept in memory, and continued where lines were appended; whatever else was done to
the file, it is made again. It changes nothing about what is read: a block is passed over where none
of its numbers is wanted and it holds no retraction, which counts wherever it stands.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from nanobot.io import FileState
from nanobot.messages import Message
from nanobot.session.jsonl_reader import NumberedLine, lines_between, numbered, place
from nanobot.session.records import Retraction, seq_of

_BLOCK = 32 * 1024
_SMALL = 8
"""Files of so many blocks or fewer are read whole."""
_EDGE = 256
"""Bytes before the end by which a file is known again after it grew."""
_MOST_BLOCKS = 16_384
"""Of so many the place is kept in memory: of half a gigabyte of text, in some 3 MB."""


class _Block(Struct, gc=False):
    """Bytes `start` to `end`. `before` and `after`: the number that was given last when it begins
    and ends; `low` and `high`: the lowest and highest in it (0: none); `retracts`: whether a
    retraction is in it."""

    start: int
    end: int
    before: int
    after: int
    low: int = 0
    high: int = 0
    retracts: bool = False

    def is_wanted(self, first: int, last: int | None) -> bool:
        """Whether something in it may be asked for with these bounds."""
        within = self.high >= first and (last is None or self.low <= last)
        return within or self.retracts or not self.high


class _Index(NamedTuple):
    state: FileState
    edge: bytes
    blocks: list[_Block]


class SeqIndex:
    """The indexes of the files that were read last, in blocks of at least so many bytes, which end
    with a line. May be used from any thread."""

    def __init__(self, block: int = _BLOCK) -> None:
        self._block = block
        self._lock = threading.Lock()
        self._indexes: OrderedDict[Path, _Index] = OrderedDict()
        self._blocks = 0

    def lines(
        self, path: Path, descriptor: int, first: int, last: int | None
    ) -> Iterator[NumberedLine]:
        """The lines of the file at `path`, which is open as `descriptor`, with the messages from
        seq `first` to `last` and all retractions; others may be among them."""
        state = FileState.of(os.fstat(descriptor))
        if state.size <= _SMALL * self._block:
            yield from numbered(descriptor, first, last)
            return
        with self._lock:
            index = self._index_of(path, descriptor, state)
        for block in index.blocks:
            if block.is_wanted(first, last):
                yield from numbered(
                    descriptor, first, last, block.start, end=block.end, before=block.before
                )

    def _index_of(self, path: Path, descriptor: int, state: FileState) -> _Index:
        known = self._indexes.pop(path, None)
        self._blocks -= len(known.blocks) if known else 0
        if known is None or known.state != state:
            # The last block may have ended in half a line.
            blocks = known.blocks[:-1] if known and _grew(known, descriptor, state) else []
            blocks += list(_blocks(descriptor, state.size, blocks[-1:], self._block))
            known = _Index(state, _edge(descriptor, state.size), blocks)
        self._indexes[path] = known
        self._blocks += len(known.blocks)
        while self._blocks > _MOST_BLOCKS and len(self._indexes) > 1:
            self._blocks -= len(self._indexes.popitem(last=False)[1].blocks)
        return known


def _grew(known: _Index, descriptor: int, state: FileState) -> bool:
    """Whether lines were appended to the file, and nothing else happened as far as can be told."""
    same = known.state.inode == state.inode and known.state.size < state.size
    return same and _edge(descriptor, known.state.size) == known.edge


def _edge(descriptor: int, size: int) -> bytes:
    return os.pread(descriptor, _EDGE, max(0, size - _EDGE))


def _blocks(descriptor: int, size: int, previous: Sequence[_Block], least: int) -> Iterator[_Block]:
    """The blocks of a file up to its size, behind the `previous` one, of at least so many bytes."""
    start, number = (previous[-1].end, previous[-1].after) if previous else (0, 0)
    block = _Block(start, start, number, number)
    for line, end in lines_between(descriptor, start, size):
        seq = seq_of(line)
        if not seq:
            placed, block.after = place(line, block.after)
            block.retracts |= isinstance(placed.record, Retraction)
            seq = placed.record.seq if isinstance(placed.record, Message) else 0
        if seq:
            block.low, block.high = min(block.low or seq, seq), max(block.high, seq)
            block.after = seq
        block.end = end
        if end - block.start >= least:
            yield block
            block = _Block(end, end, block.after, block.after)
    if block.end > block.start:
        yield block
