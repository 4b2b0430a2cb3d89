"""Checks of sound and text, and the speakable words of a reply."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.voice import VoiceFailed
from nanobot.voice.sound import clean_transcript, extract_speakable, is_wav, opus_seconds
from tests.voice.support import HEAD, opus, page, wav


def test_a_voice_message_is_walked_to_its_end() -> None:
    assert opus_seconds(opus(2.5)) == 2.5
    assert opus_seconds(HEAD + page(b"a" * 600, 1) + page(b"b", 61.0)) == 61.0
    assert is_wav(wav())


@pytest.mark.parametrize(
    "sound",
    [
        b"",
        b"OggS",
        wav(),
        b"ID3" + opus(),
        HEAD,
        opus()[:-1],
        opus() + b"x",
        HEAD + b"OggS" * 20,
        b"OggS\0\2" + bytes(20) + b"\1\5vorbis",
        b"<html>OggS OpusHead</html>",
    ],
)
def test_what_only_begins_like_one_is_none(sound: bytes) -> None:
    with pytest.raises(VoiceFailed):
        opus_seconds(sound)


@given(st.binary(max_size=400))
def test_any_bytes_are_refused_or_have_a_length(noise: bytes) -> None:
    with suppress(VoiceFailed):
        assert opus_seconds(HEAD + noise) > 0


REPLY = """\
# The plan 🎉

Read **this** [page](https://example.org/a?b=c) and https://example.org/naked — _today_.

```python
print("secret code")
```

1. Buy `milk`
2. Go home

| a | b |
|---|---|
| 1 | 2 |
"""


def test_of_a_reply_the_words_are_read_and_nothing_else() -> None:
    assert extract_speakable(REPLY, 1_000) == (
        "The plan\nRead this page and — today.\n1. Buy milk\n2. Go home"
    )
    assert extract_speakable("```\ncode\n```", 100) == ""
    assert extract_speakable("👍", 100) == ""
    assert extract_speakable("Grüße, 世界!", 100) == "Grüße, 世界!"


def test_what_is_too_long_ends_with_a_sentence_or_at_least_with_a_word() -> None:
    assert extract_speakable("One. Two three. Four", 17) == "One. Two three."
    assert extract_speakable("one two three", 9) == "one two"
    assert extract_speakable("x" * 50, 10) == "x" * 10


@given(st.text(max_size=300), st.integers(1, 50))
def test_no_reply_is_too_odd_to_be_read(reply: str, most: int) -> None:
    assert len(extract_speakable(reply, most)) <= most


def test_what_was_heard_is_plain_text_of_bounded_length() -> None:
    assert clean_transcript(b" buy \x1b[31mmilk\x07 \r\n\n now\t! \n", 100) == "buy [31mmilk\nnow !"
    assert clean_transcript("Grüße \u202eevil".encode(), 100) == "Grüße evil"
    assert clean_transcript(b"x" * 500, 10) == "x" * 10
    assert clean_transcript(b" \n ", 10) == ""


@pytest.mark.parametrize("garbage", [b"\xff\xfe\x00", b"a\0b", bytes(range(256))])
def test_what_is_no_text_was_not_heard(garbage: bytes) -> None:
    with pytest.raises(VoiceFailed, match="not text"):
        clean_transcript(garbage, 100)
