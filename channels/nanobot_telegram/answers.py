"""What the library gets to see of the answers that name a message: little more than its id.

Whoever answers `ok` has taken the message. However it then describes that message (a new kind of
entity, a server other than Telegram's that leaves things out), the library must not stumble over
the description: the message would count as not delivered and be sent once more.
"""

from __future__ import annotations

import json

_REST = {"date": 1, "chat": {"id": 1, "type": "private"}}


def slim(result: object, body: bytes) -> bytes:
    """The answer `body`, whose `result` is given, with the descriptions of messages left out."""
    short: object = _slim(result)
    if isinstance(result, list):
        messages = [_slim(one) for one in result]
        short = messages if messages and None not in messages else None
    return json.dumps({"ok": True, "result": short}).encode() if short else body


def _slim(message: object) -> dict[str, object] | None:
    number = message.get("message_id") if isinstance(message, dict) else None
    return {"message_id": number, **_REST} if isinstance(number, int) else None
