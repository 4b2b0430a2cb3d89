"""How large an image is, read from its first bytes: models charge for images by their size."""

from __future__ import annotations

import struct

_JPEG_SIZES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers of the JPEG segments that hold height and width (ITU-T T.81, table B.1)."""


def image_size(data: bytes) -> tuple[int, int]:
    """Width and height in pixels of a PNG, GIF, JPEG or WebP; (0, 0) where they cannot be read."""
    try:
        if data.startswith(b"\x89PNG"):
            width, height = struct.unpack_from(">II", data, 16)
        elif data.startswith(b"GIF8"):
            width, height = struct.unpack_from("<HH", data, 6)
        elif data.startswith(b"\xff\xd8"):
            width, height = _jpeg(data)
        elif data[8:12] == b"WEBP":
            width, height = _webp(data)
        else:
            return 0, 0
    except struct.error:
        return 0, 0
    return width, height


def _jpeg(data: bytes) -> tuple[int, int]:
    at = 2
    while at < len(data):
        marker, length = struct.unpack_from(">xBH", data, at)
        if marker in _JPEG_SIZES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        at += 2 + length
    return 0, 0


def _webp(data: bytes) -> tuple[int, int]:
    kind = data[12:16]
    if kind == b"VP8X":
        numbers = struct.unpack_from("<6B", data, 24)
        width = numbers[0] | numbers[1] << 8 | numbers[2] << 16
        height = numbers[3] | numbers[4] << 8 | numbers[5] << 16
        return width + 1, height + 1
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    width, height = struct.unpack_from("<HH", data, 26)
    return width & 0x3FFF, height & 0x3FFF
