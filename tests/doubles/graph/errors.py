"""The errors of the Graph API: the status and the text of each code, as an answer to a request and
in the status of an accepted message."""

from __future__ import annotations

import json

from tests.doubles.graph.values import Json, Refusal
from tests.doubles.server import Reply

TOKEN_INVALID = 190
BAD_PARAMETER = 100
NO_SUCH_OBJECT = 33
"""The subcode of a parameter that names an unknown object."""
UNDELIVERABLE = 131026
WINDOW_CLOSED = 131047
BAD_MEDIA = 131053

_HELP = "https://developers.facebook.com/docs/whatsapp/cloud-api/support/error-codes/"

_CODES: dict[int, tuple[int, str]] = {
    1: (400, "An unknown error has occurred."),
    2: (503, "Service temporarily unavailable"),
    4: (400, "Application request limit reached"),
    10: (403, "Application does not have permission for this action"),
    33: (400, "The business phone number has been deleted."),
    100: (400, "Invalid parameter"),
    104: (401, "An access token is required to request this resource."),
    190: (401, "Error validating access token: The session is invalid."),
    200: (403, "You do not have the necessary permissions"),
    368: (403, "Temporarily blocked for policies violations"),
    80007: (400, "Rate limit issues"),
    130429: (400, "Rate limit hit"),
    131000: (500, "Something went wrong"),
    131005: (403, "Access denied"),
    131008: (400, "Required parameter is missing"),
    131009: (400, "Parameter value is not valid"),
    131016: (500, "Service unavailable"),
    131026: (400, "Message undeliverable"),
    131030: (400, "Recipient phone number not in allowed list"),
    131031: (403, "Business Account locked"),
    131042: (400, "Business eligibility payment issue"),
    131047: (400, "Re-engagement message"),
    131048: (400, "Spam rate limit hit"),
    131049: (400, "This message was not delivered to maintain healthy ecosystem engagement."),
    131051: (400, "Unsupported message type"),
    131052: (400, "Media download error"),
    131053: (400, "Media upload error"),
    131056: (400, "(Business Account, Consumer Account) pair rate limit hit"),
    131057: (500, "Account in maintenance mode"),
}
_DETAILS = {
    WINDOW_CLOSED: "Message failed to send because more than 24 hours have passed since the "
    "customer last replied to this number.",
    UNDELIVERABLE: "Message Undeliverable.",
    BAD_MEDIA: "Media file could not be processed.",
}


def reject(refusal: Refusal) -> Reply:
    """Return the answer to a rejected request."""
    status, words = _CODES.get(refusal.code, (400, "Error"))
    error: Json = {
        "message": f"(#{refusal.code}) {words}",
        "type": "OAuthException",
        "code": refusal.code,
        "fbtrace_id": "AfaketraceAfaketraceAfake",
    }
    if refusal.subcode:
        error["error_subcode"] = refusal.subcode
    if details := refusal.details or _DETAILS.get(refusal.code, ""):
        error["error_data"] = {"messaging_product": "whatsapp", "details": details}
    return Reply(json.dumps({"error": error}).encode(), refusal.http or status)


def fate(code: int) -> Json:
    """Return the error in the form of a message status."""
    words = _CODES.get(code, (400, "Error"))[1]
    return {
        "code": code,
        "title": words,
        "message": words,
        "error_data": {"details": _DETAILS.get(code, words)},
        "href": _HELP,
    }
