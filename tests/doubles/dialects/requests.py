"""The parts of a Chat Completions request, as a server reads them, and how it refuses one.

A `Judge` looks at a request's body and gives the refusal of the real server, or None. Judges keep
nothing between requests, so that a property can ask them without a server.
"""

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
        """With this body as JSON."""
        return cls(status, json.dumps(body).encode())


Judge = Callable[[Json], Refusal | None]


def refuse(
    status: int, message: str, kind: str = "invalid_request_error", code: object = None
) -> Refusal:
    """As OpenAI words it, and most of the servers that follow it."""
    fields = {"message": message, "type": kind, "param": None, "code": code}
    return Refusal.of(status, {"error": fields})


def first(*judges: Judge) -> Judge:
    """The first refusal of several judges."""

    def judge(body: Json) -> Refusal | None:
        for one in judges:
            if refusal := one(body):
                return refusal
        return None

    return judge


def obj(value: object) -> Json:
    """`value` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def array(value: object) -> Sequence[object]:
    """`value` if it is an array, else an empty one."""
    return value if isinstance(value, list) else ()


def messages_of(body: Json) -> list[Json]:
    """The conversation."""
    return [obj(message) for message in array(body.get("messages"))]


def calls_of(message: Json) -> list[Json]:
    """The tool calls of a message."""
    return [obj(call) for call in array(message.get("tool_calls"))]


def arguments_of(call: Json) -> object:
    """What stands as a call's arguments."""
    return obj(call.get("function")).get("arguments")


def text_of(message: Json) -> str:
    """All text of a message."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"text": content or ""}]
    return "".join(str(obj(part).get("text", "")) for part in parts)


def is_empty(message: Json) -> bool:
    """Whether a message has no content."""
    return not array(message.get("content")) and not text_of(message)


def functions_of(body: Json) -> list[Json]:
    """The functions of the tools offered."""
    return [obj(obj(tool).get("function")) for tool in array(body.get("tools"))]


def has_image(message: Json) -> bool:
    """Whether a picture is in it."""
    return any(obj(part).get("type") == "image_url" for part in array(message.get("content")))


def forces_tool(body: Json) -> bool:
    """Whether a call is demanded, by name or of any tool."""
    choice = body.get("tool_choice")
    return isinstance(choice, dict) or choice in ("required", "any")


def current_turn(messages: Sequence[Json]) -> int:
    """Where the newest user message is; 0 where there is none."""
    return max((at for at, one in enumerate(messages) if one.get("role") == "user"), default=0)
