"""Reads a QR code from the lines of a terminal, as a phone does from the screen.

The positions of data and of finder and alignment patterns are the same for all codes of a size, so
`segno` gives them. An undamaged code needs no correction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import segno
from segno.consts import TYPE_DATA_DARK, TYPE_DATA_LIGHT

_MARGIN = 2
_BYTES_PER_BLOCK = {1: 19, 2: 34, 3: 55, 4: 80, 5: 108, 6: 68, 7: 78, 8: 97, 9: 116}
"""At the lowest correction level. From version 6 on there are two blocks, with alternating
bytes."""
_BYTE_MODE = 0b0100
_FORMAT_MASK = 0b101
"""Mask of the three bits that name the mask."""

_MASKS: Sequence[Callable[[int, int], bool]] = (
    lambda row, column: (row + column) % 2 == 0,
    lambda row, _: row % 2 == 0,
    lambda _, column: column % 3 == 0,
    lambda row, column: (row + column) % 3 == 0,
    lambda row, column: (row // 2 + column // 3) % 2 == 0,
    lambda row, column: (row * column) % 2 + (row * column) % 3 == 0,
    lambda row, column: ((row * column) % 2 + (row * column) % 3) % 2 == 0,
    lambda row, column: ((row + column) % 2 + (row * column) % 3) % 2 == 0,
)


def scan(shown: str) -> str:
    """Return the content of the code in these lines, drawn in light on dark without colours."""
    dark = _modules(shown.splitlines())
    version = (len(dark[0]) - 17) // 4
    found = [int(dark[8][column]) for column in (2, 3, 4)]
    mask = _MASKS[(found[0] << 2 | found[1] << 1 | found[2]) ^ _FORMAT_MASK]
    bits = [dark[row][column] != mask(row, column) for row, column in _path(version)]
    words = [
        sum(bit << 7 - place for place, bit in enumerate(bits[at : at + 8]))
        for at in range(0, len(bits) - 7, 8)
    ]
    size, blocks = _BYTES_PER_BLOCK[version], 1 if version < 6 else 2
    content = b"".join(bytes(words[block : size * blocks : blocks]) for block in range(blocks))
    number = int.from_bytes(content)
    left = 8 * len(content) - 12
    assert number >> left + 8 == _BYTE_MODE
    length = number >> left & 0xFF
    return (number >> left - 8 * length & (1 << 8 * length) - 1).to_bytes(length).decode()


def _modules(lines: Sequence[str]) -> Sequence[Sequence[bool]]:
    """Return the dark modules, without the margin."""
    rows = []
    for line in lines:
        inner = line[_MARGIN:-_MARGIN]
        rows += [[char not in "█▀" for char in inner], [char not in "█▄" for char in inner]]
    size = len(rows[0])
    return rows[_MARGIN : _MARGIN + size]


def _path(version: int) -> Iterator[tuple[int, int]]:
    """Yield the positions of the data bits in order."""
    example = segno.make_qr("x", version=version, error="l", boost_error=False)
    kinds = [list(row) for row in example.matrix_iter(border=0, verbose=True)]
    size = len(kinds)
    kinds[8][size - 9] = TYPE_DATA_LIGHT  # which segno counts as format information
    upwards = True
    for right in range(size - 1, 0, -2):
        pair = right if right > 6 else right - 1
        for row in range(size - 1, -1, -1) if upwards else range(size):
            for column in (pair, pair - 1):
                if kinds[row][column] in (TYPE_DATA_DARK, TYPE_DATA_LIGHT):
                    yield row, column
        upwards = not upwards
