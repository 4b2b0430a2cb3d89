"""Pure checks of sound and text from programs and servers, and the speakable words of a reply.

A voice message is an Ogg stream of Opus, the only format that chats play as one. All its pages are
checked, because a file can begin like Ogg and be damaged later."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nanobot.channel.markdown import Dialect, clean_source, lay_out
from nanobot.voice import VoiceFailed

_PAGE = 27
"""Bytes of an Ogg page before its segment table."""
_RATE = 48_000
"""Time unit of Opus, independent of the recording."""

_DIALECT = Dialect(("", "", ""), "", 80, re.compile(""), marks_quotes=False)
_LAID_OUT = 8_000
"""Characters that are parsed. A longer text is never spoken."""
_ADDRESS = re.compile(r"\b(?:https?://|www\.)\S+", re.IGNORECASE)
_UNSPEAKABLE = re.compile("[\u2500-\u27bf\u2b00-\u2bff\ufe00-\ufe0f\u200d\U0001f000-\U0001faff]+")
"""Lines, arrows and emoji. Engines read their names aloud or fail."""
_SENTENCE_END = re.compile(r"[.!?…:;。！？](?=\s)|\n")


def is_wav(sound: bytes) -> bool:
    return sound[:4] == b"RIFF" and sound[8:12] == b"WAVE"


def is_ogg_opus(sound: bytes) -> bool:
    """Check whether the sound begins like a voice message."""
    return sound.startswith(b"OggS") and b"OpusHead" in sound[:64]


def opus_seconds(sound: bytes) -> float:
    """Return the length of a voice message. Raise `VoiceFailed` if it is invalid or incomplete."""
    if not is_ogg_opus(sound):
        raise VoiceFailed("the audio is not OGG/Opus")
    positions = [position for position in read_positions(sound) if position != _UNKNOWN]
    if not positions or positions[-1] <= 0:
        raise VoiceFailed("the OGG/Opus file contains no audio")
    return positions[-1] / _RATE


_UNKNOWN = 2**64 - 1


def read_positions(sound: bytes) -> Iterator[int]:
    """Yield the time of each page in samples. Raise `VoiceFailed` if the pages do not end with the
    file."""
    at = 0
    while at < len(sound):
        segments = sound[at + _PAGE - 1] if at + _PAGE <= len(sound) else 0
        table = sound[at + _PAGE : at + _PAGE + segments]
        if sound[at : at + 4] != b"OggS" or len(table) < segments:
            raise VoiceFailed("the OGG/Opus file is damaged")
        yield int.from_bytes(sound[at + 6 : at + 14], "little")
        at += _PAGE + segments + sum(table)  # the table lists the segments' sizes
    if at != len(sound):
        raise VoiceFailed("the OGG/Opus file is truncated")


def extract_speakable(markdown: str, most: int) -> str:
    """Return the words of a reply to be read aloud, without code, tables, addresses and emoji:
    whole sentences, at most `most` characters. Empty if nothing is left."""
    source = clean_source(markdown)[:_LAID_OUT]
    said = []
    for line in lay_out(source, _DIALECT):
        if not line.is_code:
            words = "".join(span.text for span in line.spans if not span.raw)
            said.append(line.prefix + _ADDRESS.sub(" ", words))
    text = _UNSPEAKABLE.sub(" ", "\n".join(said))
    lines = (" ".join(line.split()) for line in text.split("\n"))
    return cut_sentences("\n".join(line for line in lines if any(map(str.isalnum, line))), most)


def cut_sentences(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    ends = [found.end() for found in _SENTENCE_END.finditer(text, 0, most)]
    if not ends:
        space = text.rfind(" ", 0, most)
        ends = [space if space > 0 else most]
    return text[: ends[-1]].rstrip()


_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufffe\uffff]")


def clean_transcript(said: bytes, most: int) -> str:
    """Return a program's output as plain text of at most `most` characters. Raise `VoiceFailed` if
    it is not text."""
    try:
        text = said.decode("utf-8")
    except UnicodeDecodeError as error:
        raise VoiceFailed("its output is not text") from error
    if "\0" in text:  # binary output can be valid UTF-8
        raise VoiceFailed("its output is not text")
    lines = (" ".join(_CONTROLS.sub(" ", line).split()) for line in text.split("\n"))
    return "\n".join(filter(None, lines))[:most].strip()
