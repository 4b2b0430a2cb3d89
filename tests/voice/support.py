"""Sound without an engine, and short programs in place of one."""

from __future__ import annotations

from pathlib import Path

RATE = 48_000

_PLAYER = r"""text=$(cat); cat "$1"; printf "\\001\\$(printf %o ${#text})%s" "$text" """
"""Continues a voice message with a page whose content is the text."""


def page(content: bytes, seconds: float, *, flags: int = 0) -> bytes:
    """Return a page of Ogg that ends `seconds` after the beginning."""
    table = bytes([255] * (len(content) // 255) + [len(content) % 255])
    position = int(seconds * RATE).to_bytes(8, "little")
    return b"OggS\0" + bytes([flags]) + position + bytes(12) + bytes([len(table)]) + table + content


HEAD = page(b"OpusHead\x01\x01" + bytes(9), 0, flags=2)


def opus(seconds: float = 1.0, content: bytes = b"sound") -> bytes:
    """Return a voice message without audible sound."""
    return HEAD + page(content, seconds)


def wav(samples: int = 800) -> bytes:
    """Return silence at 8,000 samples a second."""
    form = b"fmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x80\x3e\0\0\x02\0\x10\0"
    body = b"WAVE" + form + b"data" + (2 * samples).to_bytes(4, "little") + bytes(2 * samples)
    return b"RIFF" + len(body).to_bytes(4, "little") + body


def speaker(folder: Path, *, seconds: float = 1.0) -> list[str]:
    """Return a command that speaks a short text. The sound contains the text, so that a test can
    read it."""
    begun, script = folder / "begun.ogg", folder / "speak.sh"
    begun.write_bytes(HEAD + page(b"", seconds)[:26])
    script.write_text(_PLAYER)
    return ["sh", str(script), str(begun)]


def text_of_speech(sound: bytes) -> str:
    """Return the text that `speaker` spoke."""
    return sound[len(HEAD) + 28 :].decode()


LISTENER = ["cat", "{input}"]
"""A command that transcribes a recording's bytes as text."""
