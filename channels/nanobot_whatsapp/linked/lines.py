"""What we say to the helper, as lines."""

from __future__ import annotations

import json
from collections.abc import Mapping

from nanobot_whatsapp.linked.protocol import MAX_LINE, PROTOCOL, Garbage, Method, Welcome


def welcome_line(welcome: Welcome) -> bytes:
    """The answer to `hello`."""
    return _line(
        {
            "type": "welcome",
            "protocol": PROTOCOL,
            "pair": welcome.pair,
            "number": welcome.number,
            "read_receipts": welcome.read_receipts,
            "online": welcome.online,
        }
    )


def goodbye_line(reason: str) -> bytes:
    """The answer to a `hello` of another version."""
    return _line({"type": "goodbye", "reason": reason})


def ack_line(seq: int) -> bytes:
    """All events up to this one are durable here."""
    return _line({"type": "ack", "seq": seq})


def ping_line(number: int) -> bytes:
    """Asks for a `pong` with this number."""
    return _line({"type": "ping", "id": number})


def request_line(number: int, method: Method, params: Mapping[str, object]) -> bytes:
    """A request. Raises `Garbage` where it is longer than a line may be."""
    line = _line({"type": "request", "id": number, "method": method, "params": params})
    if len(line) > MAX_LINE:
        raise Garbage(f"a request to {method} is longer than {MAX_LINE:,} bytes")
    return line


def _line(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode("ascii") + b"\n"
