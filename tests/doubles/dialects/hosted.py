"""The rejections of hosted servers, each rule with its source."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from tests.doubles.dialects.requests import (
    Json,
    Refusal,
    arguments_of,
    array,
    calls_of,
    current_turn,
    first,
    forces_tool,
    functions_of,
    is_empty,
    messages_of,
    obj,
    refuse,
)
from tests.doubles.dialects.templates import as_json
from tests.doubles.openai.rules import first_error


def common(body: Json) -> Refusal | None:
    """Apply OpenAI's rules, which also hold for strictly compatible servers."""
    error = first_error(body)
    return Refusal(error.status, error.body()) if error else None


# OpenAI. The longest id: github.com/agno-agi/agno/issues/5382 (`string_above_max_length`), the
# length of descriptions: github.com/rusiaaman/wcgw/issues/51, and the limit of newer models:
# github.com/langgenius/dify/issues/24307 (`unsupported_parameter`).
_LONGEST_ID, _LONGEST_DESCRIPTION = 40, 1_024


def openai_ids(body: Json) -> Refusal | None:
    """Require call ids of at most 40 characters."""
    for index, message in enumerate(messages_of(body)):
        for position, call in enumerate(calls_of(message)):
            if len(str(call.get("id"))) > _LONGEST_ID:
                place = f"messages[{index}].tool_calls[{position}].id"
                return _too_long(place, _LONGEST_ID, len(str(call["id"])))
        if len(str(message.get("tool_call_id", ""))) > _LONGEST_ID:
            place = f"messages[{index}].tool_call_id"
            return _too_long(place, _LONGEST_ID, len(str(message["tool_call_id"])))
    return None


def openai_descriptions(body: Json) -> Refusal | None:
    """Require tool descriptions of at most 1,024 characters."""
    for index, function in enumerate(functions_of(body)):
        size = len(str(function.get("description", "")))
        if size > _LONGEST_DESCRIPTION:
            place = f"tools[{index}].function.description"
            return _too_long(place, _LONGEST_DESCRIPTION, size)
    return None


def _too_long(place: str, most: int, size: int) -> Refusal:
    message = (
        f"Invalid '{place}': string too long. Expected a string with maximum length {most}, but "
        f"got a string with length {size} instead."
    )
    return refuse(400, message, code="string_above_max_length")


def openai_limit(body: Json) -> Refusal | None:
    """Accept only `max_completion_tokens` for newer models."""
    if "max_tokens" not in body:
        return None
    message = (
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
        "'max_completion_tokens' instead."
    )
    return refuse(400, message, code="unsupported_parameter")


# Mistral: `MistralRequestValidatorV13` of github.com/mistralai/mistral-common
# (src/mistral_common/protocol/instruct/validator.py, mode `serving`), with the types and codes that
# the hosted API puts around its sentences: github.com/avante-corp/avante.nvim/pull/2695 (3230),
# github.com/OpenHands/OpenHands/issues/8685 (empty assistant). Fields it does not know:
# github.com/charmbracelet/crush/issues/1590, and github.com/editor-code-assistant/eca/issues/231.
_AFTER: Mapping[object, Sequence[str]] = {
    "system": ("user", "assistant", "system"),
    "user": ("assistant", "system", "user"),
    "assistant": ("assistant", "user", "tool"),
    "tool": ("assistant", "tool"),
}
_MISTRAL_ID = re.compile(r"[a-zA-Z0-9]{9}")
_MISTRAL_FIELDS = {
    "system": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls", "prefix"},
    "tool": {"role", "content", "tool_call_id", "name"},
}


def mistral_order(body: Json) -> Refusal | None:
    """Check the order of roles and the last role."""
    messages = messages_of(body)
    if not messages:
        return _order("Conversation must have at least one message")
    roles = [message.get("role") for message in messages]
    if len(roles) > 1 and roles[-1] not in ("user", "tool"):
        return _order(
            "Expected last role User or Tool (or Assistant with prefix True) for serving but got "
            f"{roles[-1]}"
        )
    for before, role in pairwise(roles):
        if role not in _AFTER.get(before, ()):
            return _order(f"Unexpected role '{role}' after role '{before}'")
    return None


def mistral_pairs(body: Json) -> Refusal | None:
    """Require one result for each call, with its id, before the next assistant message."""
    waiting: list[str] = []
    for message in messages_of(body):
        if message.get("role") == "tool":
            call_id = str(message.get("tool_call_id"))
            if call_id not in waiting:
                return _order(f"Unexpected tool call id {call_id} in tool results")
            waiting.remove(call_id)
        elif message.get("role") == "assistant":
            if waiting:
                return _order("Not the same number of function calls and responses")
            waiting = [str(call.get("id")) for call in calls_of(message)]
            if len(set(waiting)) < len(waiting):
                return _order(f"Duplicate tool call id {waiting[0]} in assistant message")
    return _order("Not the same number of function calls and responses") if waiting else None


def mistral_ids(body: Json) -> Refusal | None:
    """Require call ids of nine letters and digits."""
    for message in messages_of(body):
        ids = [call.get("id") for call in calls_of(message)]
        ids += [message["tool_call_id"]] if "tool_call_id" in message else []
        for one in ids:
            if not _MISTRAL_ID.fullmatch(str(one)):
                text = f"Tool call id was {one} but must be a-z, A-Z, 0-9, with a length of 9."
                return _mistral(400, text, "invalid_function_call", "3280")
    return None


def mistral_content(body: Json) -> Refusal | None:
    """Require content or calls in an assistant message."""
    for message in messages_of(body):
        if message.get("role") == "assistant" and is_empty(message) and not calls_of(message):
            text = "Assistant message must have either content or tool_calls, but not none."
            return _mistral(400, text, "invalid_request_assistant_message", "3240")
    return None


def mistral_fields(body: Json) -> Refusal | None:
    """Reject unknown fields."""
    for index, message in enumerate(messages_of(body)):
        role = str(message.get("role"))
        unknown = sorted(set(message) - _MISTRAL_FIELDS.get(role, {"role"}))
        if unknown:
            return _forbidden("messages", index, role, unknown[0])
    return _forbidden("max_completion_tokens") if "max_completion_tokens" in body else None


def _forbidden(*place: object) -> Refusal:
    detail = {"type": "extra_forbidden", "loc": ["body", *place]}
    detail["msg"] = "Extra inputs are not permitted"
    whole = {"object": "error", "message": {"detail": [detail]}, "type": "invalid_request_error"}
    return Refusal.of(422, {**whole, "param": None, "code": None})


def _order(text: str) -> Refusal:
    return _mistral(400, text, "invalid_request_message_order", "3230")


def _mistral(status: int, text: str, kind: str, code: str) -> Refusal:
    whole = {"object": "error", "message": text, "type": kind, "param": None, "code": code}
    return Refusal.of(status, whole)


# DeepSeek. Which messages need it: api-docs.deepseek.com/guides/thinking_mode ("for turns that do
# perform tool calls, the reasoning_content must be fully passed back in all subsequent requests";
# elsewhere it is ignored). It may be empty, but not left out:
# github.com/deepseek-ai/deepseek-harness/discussions/739. Forced tools:
# github.com/deepseek-ai/DeepSeek-V3/issues/1376 (`auto` and `none` are taken).
def deepseek_thinking(body: Json) -> Refusal | None:
    """Require the thinking of each call, unless thinking is off."""
    if _thinking_is_off(body):
        return None
    for message in messages_of(body):
        if calls_of(message) and not isinstance(message.get("reasoning_content"), str):
            text = "The `reasoning_content` in the thinking mode must be passed back to the API."
            return refuse(400, text, code="invalid_request_error")
    if forces_tool(body):
        text = "Thinking mode does not support this tool_choice"
        return refuse(400, text, code="invalid_request_error")
    return None


def _thinking_is_off(body: Json) -> bool:
    return obj(body.get("thinking")).get("type") == "disabled"


# Kimi. The thinking of each call: github.com/continuedev/continue/issues/11600; an empty text
# counts as missing: github.com/earendil-works/pi/pull/4178. Forced tools:
# github.com/can1357/oh-my-pi/issues/827 and github.com/UKGovernmentBEIS/inspect_ai/pull/5152. Empty
# messages: github.com/AstrBotDevs/AstrBot/issues/7200, also the system's:
# github.com/Mouseww/anything-analyzer/issues/32. Both efforts at once:
# github.com/HKUDS/nanobot/issues/3939.
def kimi_thinking(body: Json) -> Refusal | None:
    """Require the thinking of each call, unless thinking is off."""
    if _thinking_is_off(body):
        return None
    for index, message in enumerate(messages_of(body)):
        if calls_of(message) and not message.get("reasoning_content"):
            return _kimi(
                "thinking is enabled but reasoning_content is missing in assistant tool call "
                f"message at index {index}"
            )
    if forces_tool(body):
        choice = "specified" if isinstance(body["tool_choice"], dict) else "required"
        return _kimi(f"tool_choice '{choice}' is incompatible with thinking enabled")
    return None


def kimi_content(body: Json) -> Refusal | None:
    """Reject empty messages without a call."""
    for index, message in enumerate(messages_of(body)):
        if message.get("role") != "tool" and is_empty(message) and not calls_of(message):
            return _kimi(
                f"Invalid request: the message at position {index} with role "
                f"'{message.get('role')}' must not be empty"
            )
    return None


def kimi_effort(body: Json) -> Refusal | None:
    """Reject `thinking` together with `reasoning_effort`."""
    if "thinking" in body and "reasoning_effort" in body:
        return _kimi("cannot specify both 'thinking' and 'reasoning_effort'")
    return None


def _kimi(text: str) -> Refusal:
    return Refusal.of(400, {"error": {"message": text, "type": "invalid_request_error"}})


# Gemini. Signatures: ai.google.dev/gemini-api/docs/thought-signatures (the first call of each step
# of the current turn; `skip_thought_signature_validator` for calls that were not its own), the
# wording: github.com/TokenRhythm/opensquilla/issues/225 (its own API, in an array), a wrong one:
# github.com/anomalyco/opencode/issues/4832. Through OpenRouter:
# github.com/LibreChat-AI/agents/issues/37. Turns: github.com/microsoft/vscode/issues/299295 and
# github.com/google-gemini/gemini-cli/issues/26486. Schemas:
# github.com/zed-industries/zed/issues/44875 (`const`), github.com/openswarm-ai/openswarm/issues/24
# (`$schema`, `additionalProperties`, `propertyNames`), github.com/decolua/9router/issues/1036.
_SKIP = "skip_thought_signature_validator"
_NOT_IN_SCHEMAS = {"$schema", "$id", "$ref", "$defs", "const", "additionalProperties"} | {
    "propertyNames", "patternProperties", "exclusiveMinimum", "exclusiveMaximum",
}  # fmt: skip


def signature(seed: str) -> str:
    """Return a signature that `gemini_signatures` accepts."""
    return f"Cs{hashlib.sha256(seed.encode()).hexdigest()[:24]}{_check(seed)}|{seed}"


def _check(seed: str) -> str:
    return hashlib.sha256(f"signed {seed}".encode()).hexdigest()[:8]


def is_signature(text: object) -> bool:
    """Check whether `signature` made it."""
    return isinstance(text, str) and text == signature(text.partition("|")[2])


def gemini_signatures(body: Json) -> str:
    """Require a signature on the first call of each step of the current turn."""
    messages = messages_of(body)
    for index in range(current_turn(messages), len(messages)):
        for call in calls_of(messages[index])[:1]:
            google = obj(obj(call.get("extra_content")).get("google"))
            given = google.get("thought_signature")
            if given is None:
                return missing_signature(call, index)
            if given != _SKIP and not is_signature(given):
                return "Corrupted thought signature."
    return ""


def missing_signature(call: Json, index: int) -> str:
    """Return Gemini's error for a call without a signature."""
    return (
        "Function call is missing a thought_signature in functionCall parts. This is required for "
        "tools to work correctly, and missing thought_signature may lead to degraded model "
        f"performance. Additional data, function call `default_api:{_name(call)}` , position "
        f"{index}. Please refer to https://ai.google.dev/gemini-api/docs/thought-signatures for "
        "more details."
    )


def gemini_turns(body: Json) -> str:
    """Require calls after a person or results, and as many results as calls."""
    waiting, before = 0, ""
    for message in messages_of(body):
        role = str(message.get("role"))
        if role == "tool":
            waiting -= 1
        elif waiting:
            break
        elif calls := calls_of(message):
            if before not in ("user", "tool"):
                return (
                    "Please ensure that function call turn comes immediately after a user turn or "
                    "after a function response turn."
                )
            waiting = len(calls)
        before = role if role != "system" else before
    if not waiting:
        return ""
    return (
        "Please ensure that the number of function response parts is equal to the number of "
        "function call parts of the function call turn."
    )


def gemini_content(body: Json) -> str:
    """Reject empty messages without a call
    (github.com/langchain-ai/langchain-google/issues/691)."""
    for index, message in enumerate(messages_of(body)):
        if message.get("role") != "tool" and is_empty(message) and not calls_of(message):
            place = f"GenerateContentRequest.contents[{index}].parts"
            return f"* {place}: contents.parts must not be empty.\n"
    return ""


def gemini_schemas(body: Json) -> str:
    """Reject unsupported parts of JSON Schema."""
    for index, function in enumerate(functions_of(body)):
        place = f"tools[0].function_declarations[{index}].parameters"
        if wrong := _in_schema(obj(function.get("parameters")), place):
            return wrong
    return ""


def _in_schema(schema: Json, place: str) -> str:
    for name in schema:
        if name in _NOT_IN_SCHEMAS:
            return (
                f"Invalid JSON payload received. Unknown name \"{name}\" at '{place}': Cannot find "
                "field."
            )
    if isinstance(schema.get("type"), list):
        return (
            f"Invalid JSON payload received. Unknown name \"type\" at '{place}': Proto field is "
            "not repeating, cannot start list."
        )
    inner = [("items", obj(schema.get("items")))]
    inner += [(f"any_of[{n}]", obj(one)) for n, one in enumerate(array(schema.get("anyOf")))]
    properties = obj(schema.get("properties")).values()
    inner += [(f"properties[{n}].value", obj(one)) for n, one in enumerate(properties)]
    found = (_in_schema(one, f"{place}.{where}") for where, one in inner if one)
    return next(filter(None, found), "")


def gemini(body: Json) -> Refusal | None:
    """Apply the rules of Google's own server, which returns errors in an array."""
    for judge in (gemini_turns, gemini_signatures, gemini_content, gemini_schemas):
        if text := judge(body):
            error = {"code": 400, "message": text, "status": "INVALID_ARGUMENT"}
            return Refusal.of(400, [{"error": error}])
    return None


# OpenRouter: openrouter.ai/docs/guides/best-practices/reasoning-tokens (the whole sequence of
# `reasoning_details` comes back unchanged). An encrypted detail names the call it belongs to.
_PRESERVE = (
    "Gemini models require OpenRouter reasoning details to be preserved in each request. Please "
    "refer to our docs: https://openrouter.ai/docs/use-cases/reasoning-tokens#preserving-reasoning-"
    "blocks. Upstream error: "
)


def openrouter_details(body: Json) -> Refusal | None:
    """Require the encrypted details of this turn's calls."""
    messages = messages_of(body)
    for index in range(current_turn(messages), len(messages)):
        for call in calls_of(messages[index])[:1]:
            details = [obj(one) for one in array(messages[index].get("reasoning_details"))]
            encrypted = [one for one in details if one.get("type") == "reasoning.encrypted"]
            own = [one for one in encrypted if one.get("id") == call.get("id")]
            if not own or not all(is_signature(one.get("data")) for one in encrypted):
                return openrouter(_PRESERVE + as_json(_invalid(missing_signature(call, index))))
    return None


def openrouter_upstream(body: Json) -> Refusal | None:
    """Apply Gemini's other rules, as OpenRouter forwards them."""
    for judge in (gemini_turns, gemini_content, gemini_schemas):
        if text := judge(body):
            return openrouter(as_json(_invalid(text)))
    return None


def openrouter(raw: str, status: int = 400, provider: str = "Google AI Studio") -> Refusal:
    """Return an error with the other server's words in `metadata.raw`."""
    metadata = {"raw": raw, "provider_name": provider}
    error = {"message": "Provider returned error", "code": status, "metadata": metadata}
    return Refusal.of(status, {"error": error, "user_id": "user_1"})


def _invalid(text: str) -> Json:
    return {"error": {"code": 400, "message": text, "status": "INVALID_ARGUMENT"}}


def _name(call: Json) -> object:
    return obj(call.get("function")).get("name")


# Groq. Unknown fields: github.com/janhq/jan/issues/8136 (`reasoning_content`) and
# github.com/musistudio/llms/pull/64; a system message is a text:
# github.com/livekit/agents/issues/1790; `reasoning` is taken from models that think:
# github.com/vercel/ai/pull/8057; tokens per minute: github.com/continuedev/continue/issues/10218.
_GROQ_FIELDS = {
    "system": {"role", "content", "name"},
    "user": {"role", "content", "name"},
    "assistant": {"role", "content", "name", "tool_calls", "reasoning"},
    "tool": {"role", "content", "tool_call_id", "name"},
}
_GROQ_CALL = {"id", "type", "function"}


def groq_fields(body: Json) -> Refusal | None:
    """Reject unknown fields, and lists in place of a text."""
    for index, message in enumerate(messages_of(body)):
        role = str(message.get("role"))
        unknown = sorted(set(message) - _GROQ_FIELDS.get(role, {"role"}))
        unknown += [name for call in calls_of(message) for name in set(call) - _GROQ_CALL]
        if unknown:
            return _groq(index, role, f"property '{unknown[0]}' is unsupported")
        if role in ("system", "tool") and not isinstance(message.get("content"), str):
            return _groq(index, role, "value must be a string", ".content")
    return None


def _groq(index: int, role: str, what: str, place: str = "") -> Refusal:
    text = (
        f"'messages.{index}' : for 'role:{role}' the following must be satisfied"
        f"[('messages.{index}{place}' : {what})]"
    )
    return Refusal.of(400, {"error": {"message": text, "type": "invalid_request_error"}})


def groq_too_large(tokens: int, limit: int) -> Refusal:
    """Return the error for more tokens than the account may send in a minute."""
    text = (
        "Request too large for model `llama-3.3-70b-versatile` in organization `org_1` service "
        f"tier `on_demand` on tokens per minute (TPM): Limit {limit}, Requested {tokens}, please "
        "reduce your message size and try again."
    )
    error = {"message": text, "type": "tokens", "code": "rate_limit_exceeded"}
    return Refusal.of(413, {"error": error})


# MiniMax. One system message: github.com/MiniMax-AI/MiniMax-M2/issues/51; results:
# github.com/MiniMax-AI/MiniMax-M2/issues/76; arguments: github.com/earendil-works/pi/issues/5468;
# parameters: github.com/QwenLM/qwen-code/issues/11834; choices:
# github.com/eastreams/loong/issues/382.
def minimax(body: Json) -> Refusal | None:
    """Require one system message, readable calls, and results that belong to one."""
    messages = messages_of(body)
    if sum(message.get("role") == "system" for message in messages) > 1 or (
        "tool_choice" in body and body["tool_choice"] != "none"
    ):
        return _minimax("invalid params, invalid chat setting (2013)")
    known: set[object] = set()
    for message in messages:
        for call in calls_of(message):
            known.add(call.get("id"))
            if not _is_object(arguments_of(call)):
                return _minimax(
                    "invalid params, invalid function arguments json string, tool_call_id: "
                    f"{call.get('id')} (2013)"
                )
        if message.get("role") == "tool" and message.get("tool_call_id") not in known:
            given = message.get("tool_call_id")
            return _minimax(f"invalid params, tool result's tool id({given}) not found (2013)")
    if any(not obj(function.get("parameters")) for function in functions_of(body)):
        return _minimax("invalid params, function parameters is empty (2013)")
    return None


def _minimax(text: str) -> Refusal:
    error = {"type": "bad_request_error", "message": text, "http_code": "400"}
    return Refusal.of(400, {"type": "error", "error": error, "request_id": "1"})


def _is_object(arguments: object) -> bool:
    from tests.doubles.dialects.templates import parse_arguments

    return isinstance(parse_arguments(arguments), dict)


# xAI. Empty content: github.com/AstrBotDevs/AstrBot/issues/6447 and
# github.com/langbot-app/LangBot/issues/1205; too long: github.com/cline/cline/issues/3120.
def xai_content(body: Json) -> Refusal | None:
    """Require content in every message without a call."""
    for message in messages_of(body):
        if is_empty(message) and not calls_of(message):
            return _xai(
                "Invalid request content: Each message must have at least one content element."
            )
    return None


def xai_too_long(tokens: int, limit: int) -> Refusal:
    """Return the error for a prompt that does not fit."""
    return _xai(
        f"This model's maximum prompt length is {limit} but the request contains {tokens} tokens."
    )


def _xai(text: str) -> Refusal:
    return Refusal.of(400, {"code": "Client specified an invalid argument", "error": text})


# LiteLLM, in front of Anthropic: github.com/BerriAI/litellm/issues/24712.
def litellm(body: Json) -> Refusal | None:
    """Require tools in a conversation with calls."""
    if body.get("tools") or not any(calls_of(message) for message in messages_of(body)):
        return None
    text = (
        "litellm.UnsupportedParamsError: Anthropic doesn't support tool calling without `tools=` "
        "param specified. Pass `tools=` param OR set `litellm.modify_params = True`"
    )
    return Refusal.of(
        400, {"error": {"message": text, "type": "None", "param": None, "code": "400"}}
    )


OPENAI = first(common, openai_ids, openai_descriptions, openai_limit)
MISTRAL = first(mistral_fields, mistral_order, mistral_pairs, mistral_ids, mistral_content)
DEEPSEEK = first(common, deepseek_thinking)
KIMI = first(common, kimi_content, kimi_thinking, kimi_effort)
OPENROUTER = first(common, openrouter_details, openrouter_upstream)
GEMINI = first(common, gemini)
GROQ = first(common, groq_fields)
MINIMAX = first(common, minimax)
XAI = first(common, xai_content)
LITELLM = first(common, litellm)
