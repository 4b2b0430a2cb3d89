"""What an image costs follows from its size, whatever its bytes are."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.agent.media import image_size
from nanobot.providers.tokens import IMAGE_TOKENS, image_tokens

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 640, 480)
GIF = b"GIF89a" + struct.pack("<HH", 640, 480)
JPEG = (
    b"\xff\xd8\xff\xe0" + struct.pack(">H", 16) + b"JFIF".ljust(14, b"\0")
    + b"\xff\xc0" + struct.pack(">HBHH", 17, 8, 480, 640)
)  # fmt: skip
LOSSY = b"RIFF....WEBPVP8 ....\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 640, 480)
LOSSLESS = b"RIFF....WEBPVP8L....\x2f" + struct.pack("<I", 639 | 479 << 14)
EXTENDED = b"RIFF....WEBPVP8X........" + bytes((127, 2, 0, 223, 1, 0))


@pytest.mark.parametrize("data", [PNG, GIF, JPEG, LOSSY, LOSSLESS, EXTENDED])
def test_the_size_of_an_image_is_read_from_its_beginning(data: bytes) -> None:
    assert image_size(data) == (640, 480)


@given(st.sampled_from([PNG, GIF, JPEG, LOSSY, LOSSLESS, EXTENDED, b""]), st.binary(max_size=40))
def test_damaged_images_have_some_size_or_none(start: bytes, rest: bytes) -> None:
    width, height = image_size(start[: len(start) // 2] + rest)
    assert min(width, height) >= 0


@pytest.mark.parametrize(
    ("size", "tokens"),
    [((512, 512), 255), ((1024, 1024), 765), ((2048, 4096), 1105), ((0, 0), IMAGE_TOKENS)],
)
def test_an_image_costs_what_the_provider_publishes(size: tuple[int, int], tokens: int) -> None:
    assert image_tokens(*size) == tokens
