"""The rejections of the Messages API, as strict and in the same words as the real one.

DOCS is https://platform.claude.com/docs/en, and R n the GitHub report with the words. Models
differ: `ModelRules` has the rules of one."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from nanobot.providers.fields import items, mapping, string

Json = Mapping[str, object]

_FIELDS = {"model", "max_tokens", "messages", "system", "tools", "tool_choice", "thinking"} | {
    "output_config",
    "stream",
    "metadata",
    "stop_sequences",
    "cache_control",
    "container",
    "service_tier",
    "speed",
    "temperature",
    "top_p",
    "top_k",
}  # DOCS/api/messages/create
_BLOCK_FIELDS = {
    "text": {"text", "citations"},
    "image": {"source"},
    "tool_use": {"id", "name", "input", "caller"},
    "tool_result": {"tool_use_id", "content", "is_error"},
    "thinking": {"thinking", "signature"},
    "redacted_thinking": {"data"},
}
_UNMARKED = ("thinking", "redacted_thinking")
_ROLES_OF = {"user": ("text", "image", "tool_result")}
_ASSISTANTS = ("text", "tool_use", "thinking", "redacted_thinking")
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")  # DOCS/build-with-claude/vision
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_TOOL_ID = re.compile(r"[a-zA-Z0-9_-]+")
_LONE = re.compile(r"[\ud800-\udfff]")
_SAMPLING = ("temperature", "top_p", "top_k")
_MOST_BREAKPOINTS = 4


@dataclass(frozen=True, slots=True)
class ModelRules:
    """The fields that a model accepts. `thinks`: by default. `minimum`: the smallest cacheable
    prompt in tokens. `bound`: its thinking is only valid if nothing before it has changed.

    Defaults are Claude Sonnet 5's (DOCS/build-with-claude/thinking#configuring-thinking,
    DOCS/build-with-claude/prompt-caching#cache-limitations)."""

    name: str = "claude-sonnet-5"
    thinks: bool = True
    adaptive: bool = True
    enabled: bool = False
    disabled: bool = True
    between_tools: bool = False
    effort: bool = True
    bound: bool = False
    forced: bool = True
    forced_while_thinking: bool = False
    minimum: int = 1_024
    window: int = 200_000
    most_output: int = 64_000


SONNET = ModelRules()
OPUS_4_8 = ModelRules("claude-opus-4-8", thinks=False)
HAIKU_4_5 = ModelRules(
    "claude-haiku-4-5", thinks=False, adaptive=False, enabled=True, effort=False, minimum=4_096
)
OPUS_5_5 = ModelRules("claude-opus-5-5", disabled=False, forced=False, bound=True, minimum=512)
"""Also for Fable 5.1: DOCS/models/opus-5-5/whats-new-opus-5-5."""
SONNET_5_5 = ModelRules(
    "claude-sonnet-5-5", disabled=False, between_tools=True, forced=False, bound=True
)
"""DOCS/models/sonnet-5-5/whats-new-sonnet-5-5."""


@dataclass(frozen=True, slots=True)
class ApiError:
    """An error of the API (DOCS/api/errors)."""

    status: int
    message: str
    kind: str = "invalid_request_error"

    def body(self) -> bytes:
        """Return the JSON body of the answer."""
        error = {"type": self.kind, "message": self.message}
        return json.dumps({"type": "error", "error": error, "request_id": "req_1"}).encode()


def sign(model: str, thinking: str, before: str = "") -> str:
    """Return the signature of a thinking block: it proves that this model wrote it, unchanged, and
    after this context."""
    return hashlib.sha256(f"{model}\0{thinking}\0{before}".encode("utf-8", "replace")).hexdigest()


def context(body: Json, messages: int, model: ModelRules) -> str:
    """Return the context that thinking after this many messages is bound to
    (DOCS/build-with-claude/preserved-thinking/fix-bound-to-a-different-conversation)."""
    if not model.bound:
        return ""
    before = [body.get("tools"), body.get("system"), list(items(body.get("messages")))[:messages]]
    return json.dumps(before, sort_keys=True).replace(_MARK, "")


_MARK = '"cache_control": {"type": "ephemeral"}, '


def first_error(raw: bytes, version: str, model: ModelRules) -> ApiError | None:
    """Return the first reason to reject a request, or None."""
    try:
        body = json.loads(raw)
    except ValueError as error:
        return ApiError(400, f"The request body is not valid JSON: {error}")
    if not isinstance(body, dict):
        return ApiError(400, "The request body is not valid JSON: expected an object")
    if _LONE.search(json.dumps(body, ensure_ascii=False)):  # R anthropics/claude-code 60394
        said = "no low surrogate in string: line 1 column 2 (char 1)"
        return ApiError(400, f"The request body is not valid JSON: {said}")
    if body.get("model") != model.name:
        return ApiError(404, f"model: {body.get('model')}", "not_found_error")
    request = _Request(body, version, model)
    for check in _CHECKS:
        if message := check(request):
            return ApiError(400, message)
    return None


@dataclass(frozen=True, slots=True)
class _Request:
    body: Json
    version: str
    model: ModelRules

    @property
    def messages(self) -> Sequence[Json]:
        return [mapping(one) for one in items(self.body.get("messages"))]

    @property
    def tools(self) -> Sequence[Json]:
        return [mapping(one) for one in items(self.body.get("tools"))]

    @property
    def thinking(self) -> str:
        """The requested kind of thinking, or the default."""
        kind = string(mapping(self.body.get("thinking")).get("type"))
        return kind or ("adaptive" if self.model.thinks else "disabled")

    @property
    def is_forced(self) -> bool:
        return mapping(self.body.get("tool_choice")).get("type") in ("any", "tool")

    def blocks(self) -> Iterator[tuple[str, str, Json]]:
        """Yield place, role and content of each block."""
        for index, message in enumerate(self.messages):
            for position, block in enumerate(blocks_of(message)):
                yield f"messages.{index}.content.{position}", str(message.get("role")), block


def blocks_of(message: Json) -> Sequence[Json]:
    """Return the content blocks of a message. A bare text is one (DOCS/api/messages/create)."""
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [mapping(block) for block in items(content)]


def _shape(request: _Request) -> str:
    body = request.body
    for name in body:
        if name not in _FIELDS or (
            name in _SAMPLING and request.version >= "2026-10-21"
        ):  # DOCS/api/migration-2026-10-21
            return f"{name}: Extra inputs are not permitted"
    limit = body.get("max_tokens")
    if not isinstance(limit, int):
        return "max_tokens: Field required"
    if limit < 1:
        return "max_tokens: Input should be greater than or equal to 1"
    if limit > request.model.most_output:
        return (
            f"max_tokens: {limit} > {request.model.most_output}, which is the maximum allowed "
            f"number of output tokens for {request.model.name}"
        )
    return ""


def _tools(request: _Request) -> str:
    names = []
    for index, tool in enumerate(request.tools):
        place = f"tools.{index}.custom"
        names.append(tool.get("name"))
        if not _TOOL_NAME.fullmatch(string(tool.get("name"))):
            return f"{place}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$'"
        schema = mapping(tool.get("input_schema"))
        if schema.get("type") != "object":
            return f"{place}.input_schema.type: Input should be 'object'"
        if {"oneOf", "allOf", "anyOf"} & schema.keys():  # R anthropics/claude-code 5319
            said = "input_schema does not support oneOf, allOf, or anyOf at the top level"
            return f"{place}.input_schema: {said}"
        if tool.keys() - {"name", "description", "input_schema", "cache_control"}:
            return f"{place}: Extra inputs are not permitted"
    if len(set(names)) < len(names):
        return "tools: Tool names must be unique."
    uses = any(block.get("type") in ("tool_use", "tool_result") for _, _, block in request.blocks())
    if uses and not names:  # R BerriAI/litellm 5388
        return "Requests which include `tool_use` or `tool_result` blocks must define tools"
    return ""


def _tool_choice(request: _Request) -> str:
    choice = mapping(request.body.get("tool_choice"))
    if not choice:
        return ""
    if not request.tools:
        return "tool_choice may only be specified while providing tools."
    if choice.get("type") not in ("auto", "any", "tool", "none"):
        return "tool_choice: Input tag does not match any of the expected tags"
    if request.is_forced and not request.model.forced:  # R anthropics/claude-cookbooks 854
        return 'tool_choice: type "tool" and "any" are not supported for this model.'
    names = [tool.get("name") for tool in request.tools]
    if choice.get("type") == "tool" and choice.get("name") not in names:
        return f"Tool '{choice.get('name')}' not found in provided tools"
    return ""


def _thinking_type(request: _Request) -> str:
    model = request.model
    kind = string(mapping(request.body.get("thinking")).get("type"))
    if kind == "adaptive" and not model.adaptive:  # R elizaOS/eliza 16175
        return "adaptive thinking is not supported on this model"
    accepted = {
        "": True,
        "adaptive": True,
        "enabled": model.enabled,  # R Kilo-Org/kilocode 11194
        "disabled": model.disabled,  # R cline/cline 13203
        "between_tools": model.between_tools,
    }
    if not accepted.get(kind):
        other = '"thinking.type.adaptive" and "output_config.effort"'
        if kind == "disabled" and model.between_tools:
            other = '"thinking.type.between_tools"'
        return (
            f'"thinking.type.{kind}" is not supported for this model. Use {other} to control '
            "thinking behavior."
        )
    return ""


def _thinking(request: _Request) -> str:
    model, given = request.model, mapping(request.body.get("thinking"))
    if given.get("type") == "enabled":  # DOCS/build-with-claude/extended-thinking
        budget, limit = given.get("budget_tokens"), request.body.get("max_tokens")
        if not isinstance(budget, int) or budget < 1_024:
            return "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
        if isinstance(limit, int) and budget >= limit:
            return "`max_tokens` must be greater than `thinking.budget_tokens`."
    if request.body.get("output_config") and not model.effort:  # R elizaOS/eliza 16175
        return "This model does not support the effort parameter."
    is_on = request.thinking in ("adaptive", "enabled")
    if is_on and request.is_forced and not model.forced_while_thinking:  # R BerriAI/litellm 8883
        return "Thinking may not be enabled when tool_choice forces tool use."
    if is_on and request.body.get("temperature", 1) != 1:  # R zeroclaw-labs/zeroclaw 10611
        return "`temperature` may only be set to 1 when thinking is enabled or in adaptive mode."
    return ""


def _roles(request: _Request) -> str:
    messages = request.messages
    if not messages:
        return "messages: at least one message is required"
    roles = [message.get("role") for message in messages]
    for index, role in enumerate(roles):
        if role not in ("user", "assistant"):
            return f"messages.{index}.role: Input should be 'user' or 'assistant'"
        if not blocks_of(messages[index]):
            # R experientiallabs/experiential 804; for an assistant the API is more lenient
            return f"messages.{index}: {role} messages must have non-empty content"
        if index and role == roles[index - 1]:  # older versions and Bedrock: DOCS/api/errors
            return (
                'messages: roles must alternate between "user" and "assistant", but found '
                f'multiple "{role}" roles in a row'
            )
    if roles[0] != "user":  # R lobehub/lobehub 1601
        return 'messages: first message must use the "user" role'
    if roles[-1] != "user":  # R aaif-goose/goose 7425
        return (
            "This model does not support assistant message prefill. The conversation must end "
            "with a user message."
        )
    return ""


def _blocks(request: _Request) -> str:
    for place, role, block in request.blocks():
        kind = string(block.get("type"))
        if kind not in _ROLES_OF.get(role, _ASSISTANTS):
            return f"{place}: Input tag '{kind}' found using 'type' does not match any expected tag"
        allowed = _BLOCK_FIELDS[kind] | {"type"}
        allowed |= set() if kind in _UNMARKED else {"cache_control"}
        if extra := sorted(block.keys() - allowed):  # R Wei-Shaw/sub2api 225
            return f"{place}.{kind}.{extra[0]}: Extra inputs are not permitted"
        if message := _block(place, kind, block):
            return message
    return ""


def _block(place: str, kind: str, block: Json) -> str:
    if kind == "text":
        return _text("messages", block)
    if kind == "image":
        source = mapping(block.get("source"))
        if source.get("type") != "base64" or source.get("media_type") not in _IMAGES:
            return f"{place}.image.source.base64.media_type: Input should be {_IMAGES}"
    if kind == "tool_use":
        if not _TOOL_ID.fullmatch(string(block.get("id"))):
            return f"{place}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
        if not _TOOL_NAME.fullmatch(string(block.get("name"))):
            return f"{place}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$'"
        if not isinstance(block.get("input"), dict):
            return f"{place}.tool_use.input: Input should be a valid dictionary"
    if kind == "tool_result" and not isinstance(block.get("content", ""), str | list):
        return f"{place}.tool_result.content: Input should be a valid string"
    return ""


def _text(place: str, block: Json) -> str:
    """Reject blank texts. Source: R experientiallabs/experiential 804, but stricter."""
    if not string(block.get("text")):
        return f"{place}: text content blocks must be non-empty"
    if not string(block.get("text")).strip():
        return f"{place}: text content blocks must contain non-whitespace text"
    return ""


def _system(request: _Request) -> str:
    system = request.body.get("system")
    blocks = [{"type": "text", "text": system}] if isinstance(system, str) else items(system)
    return next(filter(None, (_text("system", mapping(block)) for block in blocks)), "")


def _results(request: _Request) -> str:
    """Require a result for each call at the beginning of the next message, and nothing after a call
    in its own (DOCS/agents-and-tools/tool-use/handle-tool-calls; R anthropics/claude-code
    15205)."""
    seen: set[str] = set()
    waiting: list[str] = []
    for index, message in enumerate(request.messages):
        kinds = [string(block.get("type")) for block in blocks_of(message)]
        given = [
            string(block.get("tool_use_id"))
            for block in blocks_of(message)
            if block.get("type") == "tool_result"
        ]
        if foreign := [id for id in given if id not in waiting]:  # R decocms/studio 1803
            return (
                f"messages.{index}.content.0: unexpected `tool_use_id` found in `tool_result` "
                f"blocks: {foreign[0]}. Each `tool_result` block must have a corresponding "
                "`tool_use` block in the previous message."
            )
        if len(set(given)) < len(given):
            return f"messages.{index}: each tool_use must have a single result."
        begins = kinds[: len(given)] == ["tool_result"] * len(given)
        if (missing := [id for id in waiting if id not in given]) or not begins:
            return (  # R anthropics/claude-code 2697
                f"messages.{index - 1}: `tool_use` ids were found without `tool_result` blocks "
                f"immediately after: {', '.join(missing)}. Each `tool_use` block must have a "
                "corresponding `tool_result` block in the next message."
            )
        uses = [block for block in blocks_of(message) if block.get("type") == "tool_use"]
        waiting = [string(block.get("id")) for block in uses]
        if seen & set(waiting) or len(set(waiting)) < len(waiting):
            return f"messages.{index}.content.0: `tool_use` ids must be unique"
        seen |= set(waiting)
        if uses and kinds[-len(uses) :] != ["tool_use"] * len(uses):
            return (
                f"messages.{index}: `tool_use` ids were found without `tool_result` blocks "
                f"immediately after: {waiting[0]}."
            )
    return ""


def _check_returned_thinking(request: _Request) -> str:
    """DOCS/build-with-claude/thinking, on thinking with tools."""
    for index, message in enumerate(request.messages):
        kinds = [string(block.get("type")) for block in blocks_of(message)]
        thought = [position for position, kind in enumerate(kinds) if kind in _UNMARKED]
        if not thought:
            continue
        if kinds[-1] in _UNMARKED:  # R tailcallhq/forgecode 2107
            said = f"The final block in an assistant message cannot be `{kinds[-1]}`."
            return f"messages.{index}: {said}"
        if kinds[0] not in _UNMARKED:  # R anthropics/claude-code 20691
            return (
                f"messages.{index}.content.0: If an assistant message contains any thinking "
                "blocks, the first block must be `thinking` or `redacted_thinking`. Found "
                f"`{kinds[0]}`."
            )
        for position in thought:
            if not _is_genuine(request, index, blocks_of(message)[position]):
                # R NousResearch/hermes-agent 24107
                said = "Invalid `signature` in `thinking` block"
                if request.model.bound:
                    said += ". The block is bound to a different conversation. Remove the block, or"
                    said += (
                        ' set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
                    )
                return f"messages.{index}.content.{position}: {said}"
    return _running_turn(request)


def _is_genuine(request: _Request, index: int, block: Json) -> bool:
    model = request.model
    if block.get("type") == "redacted_thinking":
        return string(block.get("data")).startswith(f"{model.name}:")
    before = context(request.body, index, model)
    return block.get("signature") == sign(model.name, string(block.get("thinking")), before)


def _running_turn(request: _Request) -> str:
    """Require an unchanged mode of thinking when an assistant's turn continues after tool
    results."""
    messages = request.messages
    if not any(block.get("type") == "tool_result" for block in blocks_of(messages[-1])):
        return ""
    start = len(messages) - 2
    while start >= 2 and all(
        b.get("type") == "tool_result" for b in blocks_of(messages[start - 1])
    ):
        start -= 2
    first = string(blocks_of(messages[start])[0].get("type"))
    if request.thinking == "enabled" and first not in _UNMARKED:  # R opencode 3077
        return (
            f"messages.{start}.content.0.type: Expected `thinking` or `redacted_thinking`, but "
            f"found `{first}`. When `thinking` is enabled, a final `assistant` message must start "
            "with a thinking block (preceeding the lastmost set of `tool_use` and `tool_result` "
            "blocks). We recommend you include thinking blocks from previous turns. To avoid this "
            "requirement, disable `thinking`."
        )
    kinds = {block.get("type") for message in messages[start:] for block in blocks_of(message)}
    if request.thinking == "disabled" and kinds & set(_UNMARKED):  # R tailcallhq/forgecode 1853
        return (
            f"messages.{start}.content.0: When thinking is disabled, an `assistant` message in "
            "the final position cannot contain `thinking`. To use thinking blocks, enable "
            "`thinking` in your request."
        )
    return ""


def _breakpoints(request: _Request) -> str:
    marked = json.dumps(request.body).count('"cache_control": {"type": "ephemeral"')
    if marked > _MOST_BREAKPOINTS:  # R tghamm/Anthropic.SDK 50
        return f"A maximum of 4 blocks with cache_control may be provided. Found {marked}."
    return ""


_CHECKS: tuple[Callable[[_Request], str], ...] = (
    _shape,
    _tools,
    _tool_choice,
    _thinking_type,
    _thinking,
    _roles,
    _system,
    _blocks,
    _results,
    _check_returned_thinking,
    _breakpoints,
)
