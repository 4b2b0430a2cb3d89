from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.messages import Attachment, Message, ToolCall
from nanobot.session.records import (
    Epoch,
    Foreign,
    JsonValue,
    Mark,
    Metadata,
    Retraction,
    decode,
    encode,
    seq_of,
)
from tests.session.support import NOON

text = st.text(st.characters(codec=None), max_size=20)
moments = st.datetimes(
    datetime(2000, 1, 1),  # noqa: DTZ001 - the strategy adds the zone
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))]),
)
messages = st.builds(
    Message,
    role=st.sampled_from(["user", "assistant", "tool"]),
    content=text,
    timestamp=moments,
    seq=st.integers(1, 10**9),
    tool_calls=st.lists(st.builds(ToolCall, text, text, text), max_size=2).map(tuple),
    tool_call_id=text,
    name=text,
    tools_used=st.lists(text, max_size=2).map(tuple),
    turn_id=text,
    media=st.lists(
        st.builds(Attachment, text, text, text, text, st.integers(0, 2**62)), max_size=2
    ).map(tuple),
    origin=text,
    notice=text,
    about=text,
)


@given(messages)
def test_every_message_comes_back_as_it_was(message: Message) -> None:
    line = encode(message)
    assert len(line.splitlines()) == line.count("\n") == 1
    assert not [c for c in line[:-1] if category(c) in ("Cc", "Cs", "Zl", "Zp")]
    assert decode(line.rstrip("\n").encode()) == message
    assert seq_of(line.encode()) == message.seq


def test_letters_of_any_script_stand_in_the_file_as_they_were_written() -> None:
    said = "我对花生过敏, größer \U0001f600"
    assert f'"{said}"' in encode(Message("user", said, seq=1))
    assert decode(json.dumps({"role": "user", "content": said, "seq": 1}).encode()) == decode(
        encode(Message("user", said, seq=1)).encode()
    )


@pytest.mark.parametrize(
    "line",
    [
        encode(Epoch(5, "9", NOON)),
        encode(Retraction("t1", 3, 4, NOON)),
        '{"role":"user","content":"hi"}',
        '{"seq":3,"role":"user","content":"hi"}',
        '{"role":"user","content":["hi"],"seq":3}',
        '{"role":"user","content":"hi","metadata":{"seq":3}}',
        '{"role":"user","content":"hi","seq":-3}',
        '{"role":"user","content":"hi","seq":3.5}',
        '{"role":"user","content":"hi","seq":"3"}',
        r'{"role":"user","content":"hi\","seq":3,"name":"x"}',
        '{"role":"user","content":"hi","se',
    ],
)
def test_the_number_of_a_line_that_is_not_written_so_is_not_guessed(line: str) -> None:
    assert seq_of(line.encode()) == 0


@pytest.mark.parametrize(
    "record",
    [
        Metadata("cli:a", NOON, NOON, 7, 3, {"model": "m", "n": [1, None]}, "5/9"),
        Epoch(5, "9", NOON),
        Retraction("t1", 3, 4, NOON),
        Mark(3, True, "7", "a reaction", NOON),
        Mark(3, False, "7", "", NOON),
    ],
)
def test_other_lines_come_back_as_they_were(record: Metadata | Epoch | Retraction | Mark) -> None:
    assert decode(encode(record).encode()) == record


def test_calls_are_stored_as_the_api_writes_them() -> None:
    message = Message("assistant", "", tool_calls=(ToolCall("c1", "grep", '{"a":  1}'),), seq=1)
    assert json.loads(encode(message))["tool_calls"] == [
        {"id": "c1", "type": "function", "function": {"name": "grep", "arguments": '{"a":  1}'}}
    ]


def test_text_that_breaks_other_readers_survives() -> None:
    nasty = "\ud800 \u2028\u2029\x85\r\n\x00 \U0001f600"
    line = encode(Message("user", nasty, seq=1))
    assert len(line.splitlines()) == 1
    record = decode(line.encode())
    assert isinstance(record, Message)
    assert record.content == nasty


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, ""),
        ([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}], "a\n[image]"),
        (["a", {"type": "text", "text": "b"}, 7, None], "a\nb\n7"),
        ({"a": 1}, '{"a": 1}'),
        (12, "12"),
    ],
)
def test_content_that_is_no_text_becomes_one(content: JsonValue, said: str) -> None:
    record = decode(json.dumps({"role": "user", "content": content}).encode())
    assert record == Message("user", said)


@pytest.mark.parametrize(
    ("arguments", "stored"), [({"a": "ü"}, '{"a": "ü"}'), (None, "{}"), ("{a", "{a"), ("", "")]
)
def test_arguments_become_text(arguments: JsonValue, stored: str) -> None:
    call = {"id": "c", "function": {"name": "grep", "arguments": arguments}}
    line = json.dumps({"role": "assistant", "content": None, "tool_calls": [call, "?", 3]})
    assert decode(line.encode()) == Message(
        "assistant", "", tool_calls=(ToolCall("c", "grep", stored),)
    )


def test_a_naive_timestamp_is_local_time() -> None:
    record = decode(b'{"role":"user","content":"a","timestamp":"2026-03-01T12:00:00"}')
    assert isinstance(record, Message)
    assert record.timestamp == datetime(2026, 3, 1, 12).astimezone()
    assert record.timestamp
    assert record.timestamp.tzinfo


@pytest.mark.parametrize("stamp", ['"yesterday"', "12", "null", '"0001-01-01T00:00:00"', "[]"])
def test_a_timestamp_that_is_none_does_no_harm(stamp: str) -> None:
    record = decode(b'{"role":"user","content":"a","timestamp":%s}' % stamp.encode())
    assert isinstance(record, Message)
    assert record.timestamp is None or record.timestamp.tzinfo


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"{", b"[1]", b'"text"', b"\xff\xfe", b"\x00" * 9, b"nul", b'{"a":1}}'),
        b"[" * 100_000,
        b'{"role":"user","content":"x","later":' + b"[" * 9_999 + b"]" * 9_999 + b"}",
    ],
    ids=range(10),
)
def test_a_broken_line_says_nothing(line: bytes) -> None:
    assert decode(line) is None


@pytest.mark.parametrize(
    ("line", "numbered"),
    [('{"role":"system","content":"x"}', True), ('{"_type":"later","seq":1}', False), ("{}", True)],
)
def test_an_object_of_another_kind_is_known_as_such(line: str, numbered: bool) -> None:
    assert decode(line.encode()) == Foreign(numbered)


@given(
    st.dictionaries(
        st.sampled_from(
            ["_type", "role", "content", "seq", "timestamp", "tool_calls", "media", "metadata"]
        ),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats()
            | st.text(max_size=5)
            | st.sampled_from(["user", "metadata", "epoch", "retract", "mark"]),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(["id", "function", "name", "type"]), inner)
            ),
            max_leaves=6,
        ),
    )
)
def test_no_object_is_too_strange_to_read(fields: dict[str, JsonValue]) -> None:
    assert decode(json.dumps(fields).encode()) is not None


@pytest.mark.parametrize("size", [-1, 2**63, 10**400, "5", None])
def test_a_file_with_an_impossible_size_is_left_out(size: object) -> None:
    files = [{"file": "a.png", "size": size}, {"file": "b.png", "size": 2}]
    message = decode(json.dumps({"role": "user", "content": "x", "media": files}).encode())
    assert isinstance(message, Message)
    assert [one.file for one in message.media] == ["b.png"]
