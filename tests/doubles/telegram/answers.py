"""The error answers of `FakeTelegram`."""

from __future__ import annotations

import json

from tests.doubles.server import Reply
from tests.doubles.telegram.values import Json, Refusal


def reject(refusal: Refusal) -> Reply:
    """Return the answer to a rejected call."""
    body: Json = {"ok": False, "error_code": refusal.code, "description": refusal.description}
    if refusal.parameters:
        body["parameters"] = refusal.parameters
    return Reply(json.dumps(body).encode(), refusal.code)
