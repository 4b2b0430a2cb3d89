"""What to do when Telegram refuses a part with status 400: pure.

The Bot API tells its refusals apart only by their texts, so they are read here and nowhere else.
What is not known is final. Each way of mending is used once, so that trying ends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

_NO_REPLY = (
    "message to be replied not found",
    "message to reply not found",
    "replied message not found",
    "reply_message_id_invalid",
    "message_id_invalid",
)
_NO_TOPIC = ("thread not found", "topic_deleted", "topic_closed", "topic_id_invalid")
_NO_ENTITIES = ("entities", "entity_", "can't parse", "invalid url", "url_invalid")
_NO_CHAT = ("chat not found", "peer_id_invalid", "user_is_blocked", "user not found")
_NO_RIGHTS = ("not enough rights to send text", "have no rights to send", "chat_write_forbidden")
_TOO_LONG = ("too long", "too_long")
_TOO_LARGE = "too large"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One way of sending a part. `thread` and `reply_to` are ids or None; `plain`: without
    entities; `documents`: every file as a plain document."""

    chat_id: int
    thread: int | None = None
    reply_to: int | None = None
    plain: bool = False
    documents: bool = False


def mended(attempt: Attempt, refusal: str, *, has_files: bool) -> Attempt | None:
    """Another way of sending what was refused with this text, or None where there is none."""
    said = refusal.casefold()
    if is_chat_lost(said) or _TOO_LARGE in said or any(text in said for text in _NO_RIGHTS):
        return None
    if attempt.thread is not None and any(text in said for text in _NO_TOPIC):
        return replace(attempt, thread=None)
    if attempt.reply_to is not None and any(text in said for text in _NO_REPLY):
        return replace(attempt, reply_to=None)
    is_too_long = any(text in said for text in _TOO_LONG)
    if not attempt.plain and (is_too_long or any(text in said for text in _NO_ENTITIES)):
        return replace(attempt, plain=True)  # the source may be shorter than what is made of it
    if has_files and not attempt.documents and not is_too_long:
        return replace(attempt, documents=True)
    return None


def is_chat_lost(refusal: str) -> bool:
    """Whether a refusal says that there is no such chat for us."""
    return any(text in refusal.casefold() for text in _NO_CHAT)


def is_not_modified(refusal: str) -> bool:
    """Whether an edit was refused because the message already reads so: that is success."""
    return "message is not modified" in refusal.casefold()
