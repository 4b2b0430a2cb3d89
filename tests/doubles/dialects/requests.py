"""The parts of a Chat Completions request from a server's view, and rejections.

A `Judge` checks a request's body and returns the rejection of the real server, or None. Judges are
stateless, so that a property can use them without a server."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Json = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer with an error status."""

    status: int
    body: bytes

    @classmethod
    def of(cls, status: int, body: object) -> Refusal:
        """Return a rejection with this body as JSON."""
        return cls(status, json.dumps(body).encode())


Judge = Callable[[Json], Refusal | None]


def refuse(
    status: int, message: str, kind: str = "invalid_request_error", code: object = None
) -> Refusal:
    """Return a rejection in the form of OpenAI and most compatible servers."""
    fields = {"message": message, "type": kind, "param": None, "code": code}
    return Refusal.of(status, {"error": fields})


def first(*judges: Judge) -> Judge:
    """Return a judge with the first rejection of several judges."""

    def judge(body: Json) -> Refusal | None:
        for one in judges:
            if refusal := one(body):
                return refusal
        return None

    return judge


def obj(value: object) -> Json:
    """Return `value` if it is an object, otherwise an empty one."""
    return value if isinstance(value, dict) else {}


def array(value: object) -> Sequence[object]:
    """Return `value` if it is an array, otherwise an empty one."""
    return value if isinstance(value, list) else ()


def messages_of(body: Json) -> list[Json]:
    """Return the conversation."""
    return [obj(message) for message in array(body.get("messages"))]


def calls_of(message: Json) -> list[Json]:
    """Return the tool calls of a message."""
    return [obj(call) for call in array(message.get("tool_calls"))]


def arguments_of(call: Json) -> object:
    """Return the arguments of a call."""
    return obj(call.get("function")).get("arguments")


def text_of(message: Json) -> str:
    """Return all text of a message."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"text": content or ""}]
    return "".join(str(obj(part).get("text", "")) for part in parts)


def is_empty(message: Json) -> bool:
    """Check whether a message has no content."""
    return not array(message.get("content")) and not text_of(message)


def functions_of(body: Json) -> list[Json]:
    """Return the functions of the offered tools."""
    return [obj(obj(tool).get("function")) for tool in array(body.get("tools"))]


def has_image(message: Json) -> bool:
    """Check whether a message contains a picture."""
    return any(obj(part).get("type") == "image_url" for part in array(message.get("content")))


def forces_tool(body: Json) -> bool:
    """Check whether a call is required, by name or of any tool."""
    choice = body.get("tool_choice")
    return isinstance(choice, dict) or choice in ("required", "any")


def current_turn(messages: Sequence[Json]) -> int:
    """Return the position of the newest user message, or 0 if there is none."""
    return max((at for at, one in enumerate(messages) if one.get("role") == "user"), default=0)
