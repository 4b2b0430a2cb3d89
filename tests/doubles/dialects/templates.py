"""The rejections of local servers and their chat templates: llama.cpp, vLLM, LM Studio, Ollama."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.doubles.dialects.requests import (
    Json,
    Judge,
    Refusal,
    arguments_of,
    array,
    calls_of,
    first,
    functions_of,
    has_image,
    messages_of,
    obj,
)

_UNREADABLE = object()
Template = Callable[[Json], str]
"""Returns a template's error for a rejected request, otherwise an empty text."""
_TRACE = (
    "\n------------\nWhile executing CallExpression at line 47, column 32 in source:\n...== 0) %}↵"
    "            {{- raise_exception('After the optional system message, con...\n"
    "                                           ^\nError: Jinja Exception: "
)


def parse_arguments(arguments: object) -> object:
    """Return the value of a call's arguments, or `_UNREADABLE`."""
    try:
        value: object = json.loads(arguments) if isinstance(arguments, str) else _UNREADABLE
    except (ValueError, RecursionError):
        return _UNREADABLE
    return value


def as_json(value: object) -> str:
    """Encode JSON as servers do in a text."""
    return json.dumps(value, indent=2) + "\n"


# The template of Mistral's and Devstral's GGUF files: github.com/ggml-org/llama.cpp/issues/19851.
# Calls and their results are not counted.
ALTERNATE = (
    "After the optional system message, conversation roles must alternate user and assistant roles "
    "except for tool calls and results."
)
# The template of Gemma: github.com/janhq/jan/issues/6254. Each message counts, and llama.cpp gives
# results to it as messages of the user (common/chat.cpp, for templates without tools).
GEMMA = "Conversation roles must alternate user/assistant/user/assistant/..."


def mistral_template(body: Json) -> str:
    """Require alternating user and assistant messages, without calls and results."""
    messages = _after_system(body)
    counted = [one for one in messages if one.get("role") != "tool" and not calls_of(one)]
    return "" if _take_turns([one.get("role") == "user" for one in counted]) else ALTERNATE


def gemma_template(body: Json) -> str:
    """Require alternating user and assistant messages. A result counts as the user's."""
    roles = [one.get("role") in ("user", "tool") for one in _after_system(body)]
    return "" if _take_turns(roles) else GEMMA


def _after_system(body: Json) -> list[Json]:
    messages = messages_of(body)
    return messages[1:] if messages and messages[0].get("role") == "system" else messages


def _take_turns(users: list[bool]) -> bool:
    return all(user == (at % 2 == 0) for at, user in enumerate(users))


def late_system(body: Json) -> str:
    """Apply Qwen's template: github.com/ggml-org/llama.cpp/issues/20733."""
    late = any(one.get("role") == "system" for one in messages_of(body)[1:])
    return "System message must be at the beginning." if late else ""


# llama.cpp. Arguments: github.com/ggml-org/llama.cpp/issues/25510 (`func_args_not_string`, 500);
# content: common/chat.cpp, `common_chat_msgs_parse_oaicompat`; the end of the list:
# github.com/co-l/openfox/issues/367; pictures: github.com/ggml-org/llama.cpp/issues/15377; tools:
# github.com/defilantech/LLMKube/issues/126.
def llama_arguments(body: Json) -> Refusal | None:
    """Require arguments in JSON."""
    for message in messages_of(body):
        for call in calls_of(message):
            if parse_arguments(arguments_of(call)) is _UNREADABLE:
                return llama(
                    "Failed to parse tool call arguments as JSON: [json.exception.parse_error.101] "
                    "parse error at line 1, column 12: syntax error while parsing value - "
                    "unexpected end of input; expected '[', '{', or a literal"
                )
    return None


def llama_content(body: Json) -> Refusal | None:
    """Require content or calls in every message, and no two assistant messages at the end."""
    messages = messages_of(body)
    for message in messages:
        if not isinstance(message.get("content"), str | list) and not calls_of(message):
            return llama("Expected 'content' or 'tool_calls' (ref: https://github.com/ggml-org)")
    if [one.get("role") for one in messages[-2:]] == ["assistant", "assistant"]:
        text = "Cannot have 2 or more assistant messages at the end of the list."
        return llama(text, 400, "invalid_request_error")
    return None


def llama_images(body: Json) -> Refusal | None:
    """Reject pictures for a text-only model."""
    if not any(has_image(message) for message in messages_of(body)):
        return None
    return llama(
        "image input is not supported - hint: if this is unexpected, you may need to provide the "
        "mmproj"
    )


def llama_tools(body: Json) -> Refusal | None:
    """Reject tools for a server without `--jinja`."""
    return llama("tools param requires --jinja flag") if functions_of(body) else None


def llama_template(template: Template) -> Judge:
    """Return a judge for a template's rejections, which are server errors."""

    def judge(body: Json) -> Refusal | None:
        text = template(body)
        return llama(_TRACE + text) if text else None

    return judge


def llama_parser(template: Template) -> Judge:
    """Return the same for a parser of calls made from the template: newer versions make one for
    requests with tools, and answer 400 (github.com/ggml-org/llama.cpp/issues/20733)."""
    words = "Unable to generate parser for this template. Automatic parser generation failed: "

    def judge(body: Json) -> Refusal | None:
        text = template(body)
        return llama(words + _TRACE + text, 400, "invalid_request_error") if text else None

    return judge


def llama(text: str, status: int = 500, kind: str = "server_error") -> Refusal:
    """Return an error in llama.cpp's form."""
    return Refusal.of(status, {"error": {"code": status, "message": text, "type": kind}})


def llama_too_long(tokens: int, window: int) -> Refusal:
    """Return the error of `send_error` in tools/server/server-context.cpp."""
    text = (
        f"request ({tokens} tokens) exceeds the available context size ({window} tokens), try "
        "increasing it"
    )
    error = {"code": 400, "message": text, "type": "exceed_context_size_error"}
    return Refusal.of(400, {"error": {**error, "n_prompt_tokens": tokens, "n_ctx": window}})


# vLLM: `_postprocess_messages` of vllm/entrypoints/chat_utils.py,
# github.com/vllm-project/vllm/issues/43995 (400) and …/pull/47555 (values that are no object reach
# the template: 500).
def vllm_arguments(body: Json) -> Refusal | None:
    """Require a JSON object as arguments."""
    for message in messages_of(body):
        for call in calls_of(message):
            arguments = arguments_of(call)
            value = parse_arguments(arguments) if arguments else {}
            if value is _UNREADABLE:
                return vllm(400, "Unterminated string starting at: line 1 column 10 (char 9)")
            if value is not None and not isinstance(value, dict):
                text = f"'{type(value).__name__}' object has no attribute 'items'"
                return vllm(500, text, "InternalServerError")
    return None


def vllm_parser(body: Json) -> Refusal | None:
    """Reject tools for a server without a parser: github.com/vllm-project/vllm/issues/9986."""
    if not functions_of(body):
        return None
    return vllm(
        400,
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
    )


def vllm_template(body: Json) -> Refusal | None:
    """Apply the template of Mistral's models without `--tokenizer-mode mistral`."""
    text = mistral_template(body)
    return vllm(400, text) if text else None


def vllm(status: int, text: str, kind: str = "BadRequestError") -> Refusal:
    """Return an error in vLLM's form."""
    error = {"message": text, "type": kind, "param": None, "code": status}
    return Refusal.of(status, {"error": error})


def vllm_too_long(tokens: int, window: int) -> Refusal:
    """Return the error in github.com/xorbitsai/inference/issues/3785."""
    return vllm(
        400,
        f"The decoder prompt (length {tokens}) is longer than the maximum model length of "
        f"{window}. Make sure that `max_model_len` is no smaller than the number of text tokens.",
    )


# Ollama: openai/openai.go, `fromChatRequest` and `FromCompletionToolCall` ("invalid tool call
# arguments"; content may be null only beside calls; pictures are data, not addresses).
def ollama(body: Json) -> Refusal | None:
    """Require an object as arguments, and a text or known parts as content."""
    for message in messages_of(body):
        calls = calls_of(message)
        if not isinstance(message.get("content"), str | list) and not calls:
            return _ollama("invalid message content type: <nil>")
        if any(not isinstance(parse_arguments(arguments_of(call)), dict) for call in calls):
            return _ollama("invalid tool call arguments")
        for part in array(message.get("content")):
            if not _ollama_part(obj(part)):
                return _ollama("invalid message format")
    return None


def _ollama_part(part: Json) -> bool:
    if part.get("type") == "image_url":
        return str(obj(part.get("image_url")).get("url")).startswith("data:image/")
    return part.get("type") == "text"


def _ollama(text: str) -> Refusal:
    error = {"message": text, "type": "invalid_request_error", "param": None, "code": None}
    return Refusal.of(400, {"error": error})


# LM Studio: the template's refusal (github.com/lmstudio-ai/lmstudio-bug-tracker/issues/842), the
# form of `tool_choice` (…/issues/670), the prompt's length
# (github.com/Gitlawb/openclaude/issues/353).
def lmstudio_template(body: Json) -> str:
    """Return the template's error in LM Studio's form."""
    text = mistral_template(body)
    return text and (
        f'Error rendering prompt with jinja template: "{text}".\n\nThis is usually an issue with '
        "the model's prompt template."
    )


def lmstudio_refusal(body: Json) -> Refusal | None:
    """Return the rejection of a template, with an error status."""
    text = lmstudio_template(body)
    return Refusal.of(400, {"error": text}) if text else None


def lmstudio_choice(body: Json) -> Refusal | None:
    """Reject a tool choice by name."""
    if not isinstance(body.get("tool_choice"), dict):
        return None
    text = "Invalid tool_choice type: 'object'. Supported string values: none, auto, required"
    return Refusal.of(400, {"error": text})


def lmstudio_too_long(tokens: int, window: int) -> Refusal:
    """Return the error for a prompt that does not fit."""
    text = (
        "The number of tokens to keep from the initial prompt is greater than the context length "
        f"(n_keep: {tokens}>= n_ctx: {window}). Try to load the model with a larger context length,"
        " or provide a shorter input."
    )
    return Refusal.of(400, {"error": text})


LLAMA = first(llama_arguments, llama_content, llama_parser(late_system))
LLAMA_ALTERNATING_NEW = first(llama_arguments, llama_content, llama_parser(mistral_template))
LLAMA_ALTERNATING = first(llama_arguments, llama_content, llama_template(mistral_template))
LLAMA_GEMMA = first(llama_arguments, llama_content, llama_template(gemma_template))
LLAMA_BLIND = first(LLAMA, llama_images)
LLAMA_WITHOUT_TOOLS = first(LLAMA, llama_tools)
VLLM = vllm_arguments
VLLM_ALTERNATING = first(vllm_arguments, vllm_template)
VLLM_WITHOUT_PARSER = first(vllm_arguments, vllm_parser)
OLLAMA = ollama
LM_STUDIO = first(lmstudio_choice, lmstudio_refusal)
