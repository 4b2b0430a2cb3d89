"""The lines between daemon and helper."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nanobot_whatsapp.linked.protocol import (
    MAX_LINE,
    Answer,
    Event,
    Failure,
    FromHelper,
    Hello,
    Identity,
    Log,
    Me,
    PairCode,
    Pong,
    ProtocolViolation,
    Qr,
    State,
    Words,
    parse,
    request_line,
)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            '{"type":"hello","protocol":1,"bridge":"0.1.0","baileys":"7","node":"v22","pid":9}',
            Hello(1, "0.1.0", "7", "v22", 9),
        ),
        ('{"type":"state","state":"connecting","me":null,"more":1}', State("connecting")),
        ('{"type":"state","state":"connecting","me":{}}', State("connecting", me=Me())),
        (
            '{"type":"state","state":"backoff","detail":"a\\nb","retry_in":12.5,'
            '"me":{"number":"1@s.whatsapp.net","lid":"2@lid","name":"Sam"}}',
            State("backoff", Words("a b"), 12.5, Me("1@s.whatsapp.net", "2@lid", "Sam")),
        ),
        ('{"type":"qr","data":"2@x"}', Qr("2@x")),
        ('{"type":"pair_code","code":"ABCD-EFGH"}', PairCode("ABCD-EFGH")),
        ('{"type":"identity","lid":"2@lid","number":"1@x"}', Identity("2@lid", "1@x")),
        ('{"type":"event","seq":7,"event":{"kind":"x"}}', Event(7, {"kind": "x"})),
        ('{"type":"reply","id":5,"ok":true,"data":{"a":1}}', Answer(5, ok=True, data={"a": 1})),
        (
            '{"type":"reply","id":5,"ok":false,"error":{"code":"later","message":"m",'
            '"retry_after":3}}',
            Answer(5, ok=False, error=Failure("later", Words("m"), 3.0)),
        ),
        ('{"type":"pong","id":3}', Pong(3)),
        (
            '{"type":"log","level":"warning","message":"\\u001b[2Jm"}',
            Log("warning", Words("?[2Jm")),
        ),
        ('{"type":"of another version"}', None),
    ],
)
def test_what_the_helper_says_is_understood(line: str, said: FromHelper | None) -> None:
    assert parse(line.encode()) == said


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.one_of(
        st.binary(max_size=50),
        st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "id",
                    "seq",
                    "state",
                    "me",
                    "error",
                    "ok",
                    "retry_in",
                ]
            ),
            st.one_of(
                st.none(),
                st.booleans(),
                st.integers(),
                st.floats(),
                st.sampled_from(["hello", "state", "event", "reply", "pong", "log", "open"]),
                st.dictionaries(st.sampled_from(["code", "retry_after", "number"]), st.floats()),
            ),
        ).map(lambda fields: json.dumps(fields).encode()),
    )
)
def test_nothing_that_can_be_said_is_worse_than_garbage(line: bytes) -> None:
    with contextlib.suppress(ProtocolViolation):
        parse(line)


def test_a_request_longer_than_a_line_is_refused_here() -> None:
    with pytest.raises(ProtocolViolation):
        request_line(1, "send", {"text": "x" * MAX_LINE})
