"""Calls of the Cloud API that need no answer, one of each shape. See `shapes`."""

from __future__ import annotations

from tests.channels.whatsapp.cloud.samples import (
    ANN,
    ANN_ID,
    GROUP,
    OUR_ID,
    OURS,
    Json,
    make_call,
    message,
)
from tests.channels.whatsapp.cloud.shapes import error, make_unsupported, text


def _system(kind: str, **fields: object) -> Json:
    return message("system", {"type": kind, "body": "Something changed", **fields})


QUIET_MESSAGES: dict[str, Json] = {
    "reaction in a group": message("reaction", {"message_id": "wamid.0"}, group_id=GROUP),
    "in a group": text(f"@{OURS} hi", group_id=GROUP),
    "chat opened": message("request_welcome"),
    "vote": make_unsupported(unsupported={"type": "poll_update"}),
    "pin": make_unsupported(unsupported={"type": "pin"}),
    "another phone": _system("customer_identity_changed", identity="x", wa_id=ANN, customer=ANN),
    "joined": {**_system("group_participants_add"), "group_id": GROUP},
    "our own": {**text(), "from": OURS},
}
"""Messages that need no answer."""


def _status(state: str, **fields: object) -> Json:
    status = {"id": "wamid.s", "status": state, "timestamp": "1777636800", "recipient_id": ANN}
    return {**status, **fields}


STATUSES: dict[str, Json] = {
    "sent": _status(
        "sent",
        conversation={"id": "c", "expiration_timestamp": "1777723200"},
        pricing={"billable": True, "pricing_model": "CBP", "category": "service"},
        biz_opaque_callback_data="x",
    ),
    "delivered": _status("delivered", pricing={"pricing_model": "PMP", "type": "regular"}),
    "read": _status("read"),
    "played": _status("played"),
    "deleted": _status("deleted"),
    "warning": _status("warning", errors=[error(2026, "Some were not sent")]),
    "to who hides": _status("read", recipient_id=None, recipient_user_id=ANN_ID),
    "to a group": _status(
        "delivered", recipient_id=GROUP, recipient_type="group", recipient_participant_id=ANN
    ),
    "to a group, as it is told too": _status(
        "read", recipient_id=GROUP, participant_recipient_id=ANN, conversation={"pricing": {}}
    ),
    **{
        f"failed {code}": _status("failed", errors=[error(code, "No", "It did not arrive.")])
        for code in (130472, 131026, 131042, 131049, 131053)
    },
    "failed, as it was told once": _status("failed", errors=[{"code": 470, "title": "Late"}]),
    "failed for no reason": _status("failed"),
}

FIELDS = (
    *("account_alerts", "account_review_update", "account_update", "automatic_events"),
    *("business_capability_update", "business_status_update", "business_username_update"),
    *("calls", "flows", "group_lifecycle_update", "group_participants_update"),
    *("group_settings_update", "group_status_update", "history", "message_echoes"),
    *("message_template_components_update", "message_template_quality_update"),
    *("message_template_status_update", "messaging_handovers", "partner_solutions"),
    *("payment_configuration_update", "phone_number_name_update", "phone_number_quality_update"),
    *("security", "smb_app_state_sync", "smb_message_echoes", "standby"),
    *("template_category_update", "tracking_events", "user_id_update", "user_preferences"),
)
"""Other subscriptions than messages."""


def elsewhere() -> list[Json]:
    """Return calls that are not about messages to this number."""
    own = {"display_phone_number": OURS, "phone_number_id": OUR_ID}
    said: Json = {
        "metadata": own,
        "messages": [text()],
        "message_echoes": [text()],
        "calls": [{}],
    }
    other = {"display_phone_number": "16505551111", "phone_number_id": "123456123"}
    return [
        *(make_call({"field": field, "value": said}) for field in FIELDS),
        make_call({"field": "messages", "value": {"metadata": other, "messages": [text()]}}),
        make_call({"field": "messages", "value": {"metadata": own}}),
        {"object": "page", "entry": [{"id": "1", "messaging": [{"message": {"text": "hi"}}]}]},
        {"object": "instagram", "entry": [{"id": "1", "time": 1, "changes": []}]},
    ]
