"""Invalid requests of the Chat Completions API, checked as strictly as by the real one.

A bug that pairs a tool call with no result passes every lenient double and fails with the first
real model. So this one rejects the same requests with the same kind of error."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_PART_TYPES = ("text", "image_url", "input_audio", "file", "refusal")

Json = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ApiError:
    """An error of the API."""

    status: int
    message: str
    code: str | None = None
    kind: str = "invalid_request_error"
    param: str | None = None

    def body(self) -> bytes:
        """Return the JSON body of the answer."""
        fields = {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        }
        return json.dumps({"error": fields}).encode()


def first_error(body: Json) -> ApiError | None:
    """Return the first reason to reject `body`, or None."""
    checks: tuple[Callable[[Json], str], ...] = (_model, _limits, _stream, _tools, _messages)
    for check in checks:
        if message := check(body):
            return ApiError(400, message)
    return None


def _model(body: Json) -> str:
    name = body.get("model")
    return "" if isinstance(name, str) and name else "you must provide a model parameter"


def _limits(body: Json) -> str:
    if "max_tokens" in body and "max_completion_tokens" in body:
        return "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."
    for name in ("max_tokens", "max_completion_tokens"):
        value = body.get(name, 1)
        if not isinstance(value, int) or value < 1:
            return f"Invalid '{name}': integer below minimum value. Expected a value >= 1."
    return ""


def _stream(body: Json) -> str:
    if "stream_options" in body and body.get("stream") is not True:
        return "The 'stream_options' parameter is only allowed when 'stream' is enabled."
    return ""


def _tools(body: Json) -> str:
    tools = body.get("tools")
    if tools is None:
        return "" if "tool_choice" not in body else "'tool_choice' is only allowed with 'tools'."
    if not isinstance(tools, list) or not tools:
        return "Invalid 'tools': empty array. Expected an array with minimum length 1."
    functions = [_object(_object(tool).get("function")) for tool in tools]
    for index, function in enumerate(functions):
        if wrong := _bad_function(function, f"tools[{index}].function"):
            return wrong
    names = [function["name"] for function in functions]
    choice = _object(_object(body.get("tool_choice")).get("function")).get("name", names[0])
    if choice not in names:
        return f"Tool choice '{choice}' not found in 'tools' parameter."
    return "" if len(set(names)) == len(names) else "Tool names must be unique."


def _bad_function(function: Json, place: str) -> str:
    name = function.get("name")
    if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
        return _bad_name(f"{place}.name")
    if _object(function.get("parameters")).get("type") != "object":
        return f"Invalid schema for function '{name}': schema must be of type 'object'."
    return ""


def _messages(body: Json) -> str:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return "Invalid 'messages': empty array. Expected an array with minimum length 1."
    waiting: list[str] = []
    for index, message in enumerate(map(_object, messages)):
        wrong = _shape(message, index)
        if wrong:
            return wrong
        if message["role"] == "tool":
            call_id = message.get("tool_call_id")
            if call_id not in waiting:
                return (
                    f"Invalid parameter: messages[{index}]: messages with role 'tool' must be a "
                    "response to a preceding message with 'tool_calls'."
                )
            waiting.remove(str(call_id))
            continue
        if waiting:
            return _find_unanswered(waiting)
        waiting = [str(call.get("id")) for call in _calls(message)]
    return _find_unanswered(waiting) if waiting else ""


def _shape(message: Json, index: int) -> str:
    role = message.get("role")
    if role not in _ROLES:
        return f"Invalid value: '{role}' for 'messages[{index}].role'."
    content = message.get("content")
    calls_only = role == "assistant" and content is None and bool(message.get("tool_calls"))
    if content is None and not calls_only:
        return f"Invalid value for 'content': expected a string, got null (messages[{index}])."
    if not calls_only and not _content_fits(content):
        return f"Invalid type for 'messages[{index}].content'."
    return _bad_calls(message, index)


def _content_fits(content: object) -> bool:
    if isinstance(content, str):
        return True
    if not isinstance(content, list) or not content:
        return False
    return all(_part_fits(_object(part)) for part in content)


def _part_fits(part: Json) -> bool:
    if part.get("type") == "image_url":
        url = _object(part.get("image_url")).get("url")
        return isinstance(url, str) and url.startswith(("data:image/", "http://", "https://"))
    return part.get("type") in _PART_TYPES and isinstance(part.get("text", ""), str)


def _bad_calls(message: Json, index: int) -> str:
    if "tool_calls" not in message:
        return ""
    place = f"messages[{index}].tool_calls"
    calls = _calls(message)
    if message["role"] != "assistant" or not calls:
        return f"Invalid '{place}'."
    ids = [call.get("id") for call in calls]
    if len(set(ids)) < len(ids):
        return f"Duplicate value for 'tool_call_id' in '{place}'."
    wrong = (_bad_call(call, f"{place}[{position}]") for position, call in enumerate(calls))
    return next(filter(None, wrong), "")


def _bad_call(call: Json, place: str) -> str:
    function = _object(call.get("function"))
    name = function.get("name")
    if not isinstance(call.get("id"), str) or not call.get("id"):
        return f"Missing required parameter: '{place}.id'."
    if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
        return _bad_name(f"{place}.function.name")
    if not isinstance(function.get("arguments"), str):
        return f"Invalid type for '{place}.function.arguments'."
    return ""


def _calls(message: Json) -> Sequence[Json]:
    calls = message.get("tool_calls")
    return [_object(call) for call in calls] if isinstance(calls, list) else []


def _object(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _bad_name(place: str) -> str:
    return f"Invalid '{place}': string does not match pattern '^[a-zA-Z0-9_-]+$'."


def _find_unanswered(waiting: Sequence[str]) -> str:
    return (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to "
        "each 'tool_call_id'. The following tool_call_ids did not have response messages: "
        + ", ".join(waiting)
    )
