"""What the helper says, line by line, as values: pure.

What it says in a type that is not known becomes nothing: a newer helper may say more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import get_args

from nanobot.channel import document_of
from nanobot_whatsapp.linked.protocol import (
    Answer,
    ErrorCode,
    Event,
    Failure,
    Garbage,
    Hello,
    Identity,
    Log,
    Me,
    PairCode,
    Pong,
    Qr,
    Said,
    State,
    StateName,
)

_MOST_DETAIL = 500
"""Characters of a text of the helper's that is only read by people."""


def parse(line: bytes) -> Said | None:
    """What the helper says in a line; None for a type that is not known. Raises `Garbage`."""
    fields = _object(line)
    kind = fields.get("type")
    if not isinstance(kind, str):
        raise Garbage("a line has no type")
    reader = _READERS.get(kind)
    return None if reader is None else reader(fields)


def _object(line: bytes) -> Mapping[str, object]:
    try:
        fields = document_of(line)
    except ValueError as error:
        raise Garbage(f"a line is not JSON: {type(error).__name__}") from None
    if not isinstance(fields, dict):
        raise Garbage("a line is not an object")
    return fields


def _hello(fields: Mapping[str, object]) -> Hello:
    return Hello(
        _integer(fields, "protocol"),
        _text(fields, "bridge"),
        _text(fields, "baileys"),
        _text(fields, "node"),
        _integer(fields, "pid"),
    )


def _state(fields: Mapping[str, object]) -> State:
    name = fields.get("state")
    for known in get_args(StateName):
        if name == known:
            return State(known, _words(fields, "detail"), _seconds(fields, "retry_in"), _me(fields))
    raise Garbage(f"a state {str(name)[:50]!r}")


def _me(fields: Mapping[str, object]) -> Me | None:
    me = fields.get("me")
    if me is None:
        return None
    if not isinstance(me, dict):
        raise Garbage("`me` is not an object")
    return Me(_text(me, "number"), _text(me, "lid"), _words(me, "name"))


def _event(fields: Mapping[str, object]) -> Event:
    body = fields.get("event")
    return Event(_integer(fields, "seq"), body if isinstance(body, dict) else {})


def _answer(fields: Mapping[str, object]) -> Answer:
    number = _integer(fields, "id")
    if fields.get("ok") is True:
        data = fields.get("data")
        return Answer(number, data if isinstance(data, dict) else {})
    error = fields.get("error")
    return Answer(number, failure=_failure(error if isinstance(error, dict) else {}))


def _failure(error: Mapping[str, object]) -> Failure:
    """A failure of a kind that is not known may have done anything."""
    words, wait = _words(error, "message"), _seconds(error, "retry_after") or 0.0
    for known in get_args(ErrorCode):
        if error.get("code") == known:
            return Failure(known, words, wait)
    return Failure("unknown", words, wait)


def _log(fields: Mapping[str, object]) -> Log:
    level = _text(fields, "level").upper()
    known = level if level in {"DEBUG", "INFO", "WARNING", "ERROR"} else "INFO"
    return Log(known, _words(fields, "message"))


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Garbage(f"{name!r} is not a text")
    return value


def _words(fields: Mapping[str, object], name: str) -> str:
    """A text for people: one line, nothing in it that a terminal acts on."""
    line = " ".join(_text(fields, name)[: 4 * _MOST_DETAIL].split())
    return "".join(char if char.isprintable() else "?" for char in line)[:_MOST_DETAIL]


def _integer(fields: Mapping[str, object], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Garbage(f"{name!r} is not a whole number")
    return value


def _seconds(fields: Mapping[str, object], name: str) -> float | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e9:
        raise Garbage(f"{name!r} is no number of seconds")
    return float(value)


_READERS: Mapping[str, Callable[[Mapping[str, object]], Said]] = {
    "hello": _hello,
    "state": _state,
    "qr": lambda fields: Qr(_text(fields, "data")),
    "pair_code": lambda fields: PairCode(_text(fields, "code")),
    "identity": lambda fields: Identity(_text(fields, "lid"), _text(fields, "number")),
    "event": _event,
    "reply": _answer,
    "pong": lambda fields: Pong(_integer(fields, "id")),
    "log": _log,
}
