"""A message that cannot be read as a whole, without its malformed parts: pure.

Only parts that say something are left out. Who wrote it, where, and whether the words are theirs
must be readable: a forward whose origin is malformed stays a forward, of somebody hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

Raw = dict[str, object]
T = TypeVar("T")

KINDS = ("message", "edited_message")
WHO = frozenset(
    {
        "message_id", "chat", "from", "sender_chat", "sender_business_bot", "guest_query_id",
        "business_connection_id", "message_thread_id", "is_topic_message", "ephemeral_message_id",
        "migrate_to_chat_id", "migrate_from_chat_id", "date", "forward_origin", "via_bot",
    }
)  # fmt: skip
"""These say whose words a message holds, and where: they are never left out."""
_WORDS = ("text", "caption")
_MOST_PARTS = 100


def mend(update: Raw, read: Callable[[Raw], T], now: int) -> tuple[T, tuple[str, ...]] | None:
    """What `read` makes of the update without the parts on which it raises, and their names; None
    if it can't be said who wrote it, and for what is no message. `now` (Unix seconds) replaces a
    time that can't be read. Reads it once for each part: call it off the event loop."""
    kind = next((kind for kind in KINDS if isinstance(update.get(kind), dict)), "")
    message = update.get(kind)
    if not isinstance(message, dict) or len(message) > _MOST_PARTS:
        return None

    def reads(candidate: Raw) -> bool:
        try:
            read({**update, kind: candidate})
        except Exception:  # noqa: BLE001 - whatever a malformed value makes the library raise
            return False
        return True

    who = {key: value for key, value in message.items() if key in WHO}
    base, odd = next(((one, name) for one, name in _bases(who, now) if reads(one)), (None, ""))
    if base is None:
        return None
    faults = [odd] if odd else []
    parts = [key for key in _WORDS if key in message]
    parts += [key for key in message if key not in WHO and key not in _WORDS]
    for key in parts:
        whole: Raw = {**base, key: message[key]}
        if reads(whole):
            base = whole
            continue
        faults.append(key)
        if (rest := _rest(base, key, message[key], reads)) is not None:
            base = rest
    return read({**update, kind: base}), tuple(faults)


def _bases(who: Raw, now: int) -> list[tuple[Raw, str]]:
    """What says who wrote it, the stricter reading first, and the part that it leaves out."""
    hidden = {"type": "hidden_user", "date": now, "sender_user_name": ""}
    is_foreign = who.get("forward_origin") is not None or who.get("via_bot") is not None
    origin: Raw = {"forward_origin": hidden} if is_foreign else {}
    own = {key: value for key, value in who.items() if key not in ("forward_origin", "via_bot")}
    bare = {**own, "chat": _only(own.get("chat"), "id", "type", "is_forum")}
    bare["from"] = {"first_name": "", **_only(own.get("from"), "id", "is_bot")}
    found: list[tuple[Raw, str]] = [(who, "")]
    for part, one in (("its origin", own), ("names", bare)):
        found += [({**one, **origin}, part), ({**one, **origin, "date": now}, "date")]
    return found


def _only(value: object, *keys: str) -> Raw:
    return {key: value[key] for key in keys if key in value} if isinstance(value, Mapping) else {}


def _rest(base: Raw, key: str, value: object, reads: Callable[[Raw], bool]) -> Raw | None:
    """`base` with as much of a malformed part as can be read; None for nothing."""
    if isinstance(value, list):
        kept = [item for item in value[:_MOST_PARTS] if reads({**base, key: [item]})]
        whole = {**base, key: kept}
        return whole if kept and reads(whole) else None
    if isinstance(value, dict):
        for name in list(value)[:_MOST_PARTS]:
            less = {inner: one for inner, one in value.items() if inner != name}
            if reads(whole := {**base, key: less}):
                return whole
    return None
