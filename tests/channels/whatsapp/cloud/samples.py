"""Calls of Meta's webhook, built from their parts."""

from __future__ import annotations

from datetime import UTC, datetime

from nanobot_whatsapp.cloud.payload import Item, read
from nanobot_whatsapp.ingest import IncomingMessage

Json = dict[str, object]

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
SENT = 1777636800
OURS = "15550001111"
OUR_ID = "100000000000001"
ANN = "15550002222"
ANN_ID = "US.13491208655302741918"
GROUP = "Y2FwaV9ncm91cDoxNTU1MDAwMTExMToxMjAzNjM0MDQ2OTQyMzM4MjAZD"


def message(kind: str, content: object = None, **fields: object) -> Json:
    """Return a message from Ann. `content` is the field named after the kind."""
    told = {} if content is None else {kind: content}
    return {
        "from": ANN,
        "id": "wamid.one",
        "timestamp": str(SENT),
        "type": kind,
        **told,
        **fields,
    }


def call(*messages: object, **value: object) -> Json:
    """Return a call with these messages. `value` replaces its other fields."""
    contact = {"profile": {"name": "Ann"}, "wa_id": ANN, "user_id": ANN_ID}
    inside: Json = {
        "messaging_product": "whatsapp",
        "metadata": {"display_phone_number": OURS, "phone_number_id": OUR_ID},
        "contacts": [contact],
        **({"messages": list(messages)} if messages else {}),
        **value,
    }
    return make_call({"field": "messages", "value": inside})


def make_call(*changes: object) -> Json:
    """Return a call with these changes."""
    entry = {"id": "200000000000002", "changes": list(changes)}
    return {"object": "whatsapp_business_account", "entry": [entry]}


def items(document: object) -> list[Item]:
    """Parse a call."""
    return read(document, OUR_ID, NOW)


def find_incoming(document: object) -> list[IncomingMessage]:
    """Return the people's messages in a call."""
    return [item for item in items(document) if isinstance(item, IncomingMessage)]


def read_message(kind: str, content: object = None, **fields: object) -> IncomingMessage:
    """Parse a message with one item."""
    (one,) = find_incoming(call(message(kind, content, **fields)))
    return one
