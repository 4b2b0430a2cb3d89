"""Adapter for any server with OpenAI's Chat Completions.

The request body is joined from cached bytes. Tools and messages come first and are the same bytes
in every request that repeats them, as provider caches need. Fields that vary follow. The answer is
read as it arrives and may be a stream or one object. Requests are always streamed, because only a
stream shows that the model is still working.

Servers differ, and the differences are in a `Dialect`. If a refusal names something that can be
changed, the changed request is sent, and a change that worked is learned."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from nanobot.errors import (
    ContextTooLong,
    ProviderGarbage,
    ProviderRejected,
    RequestBlamed,
    ToolUseFailed,
)
from nanobot.messages import ToolCall
from nanobot.providers.arguments import read_arguments
from nanobot.providers.calls import calls_from_text, make_calls
from nanobot.providers.dialect import (
    RUNGS,
    Dialect,
    Dialects,
    Rung,
    dialect_for,
    is_near,
    optional,
    refuses_forcing,
)
from nanobot.providers.dialogue import Dialogue
from nanobot.providers.endpoint import Endpoint
from nanobot.providers.fields import items, mapping, string
from nanobot.providers.http import HttpConnection
from nanobot.providers.known_servers import provider_at
from nanobot.providers.port import (
    CallOptions,
    Prompt,
    Reply,
    RequestSettings,
    TextSink,
    Toolset,
    ToolSpec,
    user_message,
)
from nanobot.providers.response_body import Waits, receive

_MOST_CHANGES = 8  # changes of one request before it is given up


class _Question(Struct, frozen=True):
    """A request in any dialect. `form` holds additional fields."""

    prompt: Prompt
    options: CallOptions
    form: Mapping[str, Any] | None = None


class OpenAIProvider:
    """One model on one server. Without a `model`, the server's first one is used,
    because local servers often have just one.

    `max_tokens` bounds each reply (0: the server's default). Times are in seconds: `stall_seconds`
    without a byte, or `patience_seconds` with only signs of life, is an outage. A server in the
    owner's network may take `first_token_seconds` to read a prompt. Without streaming
    (`stream=False`, for servers that cannot) nothing shows life, so `patience_seconds` is the only
    limit. `dialects` keeps the learned dialects."""

    def __init__(
        self,
        *,
        model: str,
        base_url: str,
        api_key: str,
        max_tokens: int,
        stall_seconds: float = 120.0,
        first_token_seconds: float = 0.0,
        patience_seconds: float = 600.0,
        stream: bool = True,
        settings: RequestSettings | None = None,
        dialects: Dialects | None = None,
    ) -> None:
        self._settings = settings = settings or RequestSettings()
        key = api_key.strip()
        self._endpoint = Endpoint(base_url, model, key, own_headers=settings.headers)
        self._base_url, self._max_tokens = base_url, max_tokens
        self._dialects, self._dialogue = dialects or Dialects(), Dialogue()
        self._stream, self._served = stream, model
        stall = stall_seconds if stream else patience_seconds
        reading = first_token_seconds if is_near(base_url) else 0.0
        patience = max(patience_seconds, reading)
        self._waits = Waits(max(stall, reading), stall, patience)
        self._plain: tuple[Toolset, Toolset] | None = None
        self._connection = HttpConnection(self._endpoint, stall=self._waits.first)

    def __repr__(self) -> str:
        return f"OpenAIProvider({self._endpoint.model!r} at {self._endpoint.place!r})"

    async def complete(
        self, prompt: Prompt, options: CallOptions, on_text: TextSink | None = None
    ) -> Reply:
        """Answer `prompt`. Raise `ProviderError`s. A request is repeated only in another form,
        after a refusal or for a structured answer."""
        options = replace(options, model=options.model or await self._choose_model())
        spec = next((one for one in prompt.tools.specs if one.name == options.tool_choice), None)
        if spec is not None:
            return await self._complete_structured(prompt, options, spec)
        return await self._ask_adaptively(_Question(prompt, options), on_text)

    async def close(self) -> None:
        await self._connection.close()

    def dialect(self, model: str = "") -> Dialect:
        model = model or self._endpoint.model
        known = dialect_for(self._base_url, model)
        return self._dialects.of(self._endpoint.source(model), known)

    async def _complete_structured(
        self, prompt: Prompt, options: CallOptions, spec: ToolSpec
    ) -> Reply:
        """Get a call of one tool by the best way that works with this server, and learn the way. If
        none works, return the first reply."""
        replies: list[Reply] = []
        is_clear, left = True, list_rungs(self.dialect(options.model))
        while left:
            rung, *left = left
            asked = build_prompt(rung, prompt, spec)
            choice = {"name": spec.name, "required": "required"}.get(rung, "")
            form = format_of(spec) if rung == "schema" else {}
            question = _Question(asked, replace(options, tool_choice=choice), form)
            try:
                reply = await self._ask_adaptively(question)
            except (ProviderRejected, RequestBlamed) as error:
                # Another way may help, or an earlier one got a reply.
                if not may_refuse_form(error) or (not replies and rung == RUNGS[-1]):
                    raise
                if not refuses_forcing(error):
                    # The plainest way shows whether the form was refused.
                    is_clear, left = False, left[-1:]
                continue
            reply = convert_to_call(reply, spec, asked)
            replies.append(reply)
            called = any(fits_spec(call, spec) for call in reply.tool_calls)
            known = self.dialect(options.model)
            if called and is_clear and known.rung != rung:
                source = self._endpoint.source(options.model)
                await self._dialects.learn(source, known, replace(known, rung=rung))
            if called or reply.finish == "length":
                return reply
        return replies[0]  # without a reply the last refusal was raised

    async def _ask_adaptively(self, question: _Question, on_text: TextSink | None = None) -> Reply:
        """Ask, in another form after each refusal that names a change, and learn the form that
        worked."""
        options = question.options
        known = dialect = self.dialect(options.model)
        forced = options.tool_choice not in ("", "none") or question.form is not None
        if options.schema is not None and (known.rung == "schema" or is_near(self._base_url)):
            question = replace(question, form=format_of(options.schema))
        tried: set[bytes] = set()
        for _ in range(_MOST_CHANGES):
            try:
                reply, shown = await self._ask(question, dialect, on_text)
            except ToolUseFailed as error:
                return rescue_reply(error, question.prompt, options)
            except (ProviderRejected, RequestBlamed) as error:
                if forced and refuses_forcing(error):
                    raise
                tried.add(self._build_body(question, dialect))
                changes = self._find_changes(error, question, dialect)
                new = next((one for body, one in changes.items() if body not in tried), None)
                if new is None:
                    raise
                dialect = new
            else:
                if shown != known:
                    await self._dialects.learn(self._endpoint.source(options.model), known, shown)
                return reply
        raise self._endpoint.unusable_error("the server rejects every form of the request", "")

    def _find_changes(
        self, error: ProviderRejected | RequestBlamed, question: _Question, dialect: Dialect
    ) -> Mapping[bytes, Dialect]:
        """Return the dialects that a refusal may require, by request, most likely first. A dialect
        that leaves the request unchanged does not count, because the refusal is about something
        else."""
        changes = [*dialect.after(error, self._build_fields(question, dialect))]
        if may_refuse_form(error):  # a learned change may be outdated
            changes.append(dialect_for(self._base_url, question.options.model))
        return {self._build_body(question, one): one for one in changes}

    async def _ask(
        self, question: _Question, dialect: Dialect, on_text: TextSink | None
    ) -> tuple[Reply, Dialect]:
        """Make one request. Return the reply, and the dialect with the traits that the reply
        shows."""
        from nanobot.providers.replies import IncomingReply  # not needed at start

        prompt, options = question.prompt, question.options
        incoming = IncomingReply(
            self._endpoint,
            prompt,
            self._endpoint.source(options.model),
            reads_calls=bool(prompt.tools.specs) and not dialect.native_calls,
            on_text=on_text,
            options=options,
        )
        body = self._build_body(question, dialect)
        await receive(self._connection, "/chat/completions", body, incoming, self._waits)
        reply = incoming.finish()
        if incoming.has_native_calls:
            dialect = replace(dialect, native_calls=True)
        if incoming.from_llama:
            dialect = replace(dialect, reports_reading=True)
        return reply if reply.model else replace(reply, model=options.model), dialect

    async def _choose_model(self) -> str:
        if not self._served:
            listing: Mapping[str, object] = {}
            try:
                listing = await self._connection.ask("/models")
            except ProviderRejected as error:
                if error.status != 404:  # 404: one model and no list, so any name works
                    raise
            except ProviderGarbage:
                pass  # no list either
            names = (string(mapping(one).get("id")) for one in items(listing.get("data")))
            self._served = next(filter(None, names), "default")
        return self._served

    def body(self, prompt: Prompt, options: CallOptions) -> bytes:
        """Return the request as it is sent, in JSON."""
        return self._build_body(_Question(prompt, options), self.dialect(options.model))

    def _build_body(self, question: _Question, dialect: Dialect) -> bytes:
        prompt, model = question.prompt, question.options.model or self._endpoint.model
        fields = {
            name: value
            for name, value in self._build_fields(question, dialect).items()
            if optional(name, value) not in dialect.dropped
        }
        tools = prompt.tools
        if dialect.plain_schemas and tools.wire:
            if self._plain is None or self._plain[0] is not tools:
                from nanobot.providers.schemas import plain_tools

                self._plain = tools, plain_tools(tools)
            tools = self._plain[1]
        start = b'{"model":' + encode_json(fields.pop("model", model))
        if tools.wire:
            start += b',"tools":' + tools.wire
        source = self._endpoint.source(model)
        messages = [*self._dialogue.wire_messages(prompt.messages, dialect, source)] or [b""]
        messages[0] = start + b',"messages":[' + messages[0]
        messages[-1] += b"]," + encode_json(fields)[1:] if fields else b"]}"
        return b",".join(messages)  # the only copy of the conversation

    def _build_fields(self, question: _Question, dialect: Dialect) -> dict[str, Any]:
        """Return the fields after the messages, the owner's and the form's last."""
        options = question.options
        fields = make_choice_fields(options.tool_choice) if question.prompt.tools.wire else {}
        if limit := options.max_tokens or self._max_tokens:
            fields["max_completion_tokens" if dialect.new_limit else "max_tokens"] = limit
        if dialect.stream and self._stream:
            fields |= _STREAM
            if dialect.reports_reading or is_near(self._base_url):  # it may be llama.cpp
                fields["return_progress"] = True
        if self._settings.temperature is not None:
            fields["temperature"] = self._settings.temperature
        if effort := options.effort or self._settings.effort:
            fields |= make_effort_fields(effort, self._base_url)
        return {**fields, **self._settings.extra_body, **(question.form or {})}


_STREAM = {"stream": True, "stream_options": {"include_usage": True}}


_ENCODER = json.JSONEncoder(separators=(",", ":"))


def encode_json(value: object) -> bytes:
    return _ENCODER.encode(value).encode()


def make_choice_fields(choice: str) -> dict[str, Any]:
    if choice in ("", "none", "required"):
        return {"tool_choice": choice} if choice else {}
    return {"tool_choice": {"type": "function", "function": {"name": choice}}}


def make_effort_fields(effort: str, base_url: str) -> dict[str, Any]:
    """Return the fields that request a reasoning effort (`none` to `high`).

    Sources: OpenRouter and DeepSeek as in `dialect`; chat templates read their own arguments:
    https://docs.vllm.ai/en/latest/features/reasoning_outputs.html, llama.cpp's server README."""
    off = effort == "none"
    known = provider_at(base_url)
    match known.id if known else "":
        case "openrouter":
            return {"reasoning": {"effort": effort}}
        case "deepseek" | "kimi":
            thinking = {"thinking": {"type": "disabled" if off else "enabled"}}
            takes_effort = not off and known is not None and known.id == "deepseek"
            return {"reasoning_effort": effort, **thinking} if takes_effort else thinking
    if not is_near(base_url):
        return {"reasoning_effort": effort}
    template: dict[str, Any] = {"enable_thinking": not off}
    if not off:
        template["reasoning_effort"] = effort
    return {"reasoning_effort": effort, "chat_template_kwargs": template}


def list_rungs(dialect: Dialect) -> list[Rung]:
    """Return the ways to a structured answer that may work."""
    start = dialect.rung
    if dialect.reports_reading and start == "name":
        # llama.cpp silently treats a tool's name as "auto" (its issue 26535).
        start = "schema"
    return [*RUNGS[RUNGS.index(start) :]]


_FORM_STATUSES = (400, 404, 405, 415, 422, 500, 501)  # may be about the form of a request


def may_refuse_form(refusal: ProviderRejected | RequestBlamed) -> bool:
    """Return True if a server may have refused how a structured answer was requested."""
    return not isinstance(refusal, ContextTooLong) and refusal.status in _FORM_STATUSES


def build_prompt(rung: Rung, prompt: Prompt, spec: ToolSpec) -> Prompt:
    """Return the prompt for an answer in the form of `spec`."""
    if rung in ("name", "required"):
        same = prompt.tools.specs == (spec,)
        return prompt if same else Prompt(prompt.messages, Toolset.of([spec]))
    schema = json.dumps(spec.parameters, separators=(",", ":"), ensure_ascii=False)
    wanted = user_message(
        f"Do not call {spec.name}. Answer with its arguments: only one JSON object that fits this"
        f" JSON Schema.\n\n{schema}"
    )
    return Prompt((*prompt.messages, wanted), Toolset.of([]))


def rescue_reply(failed: ToolUseFailed, prompt: Prompt, options: CallOptions) -> Reply:
    """Return the reply that a server could not parse (Groq: `tool_use_failed`). Raise the error
    again if its text cannot be read here either."""
    from nanobot.providers.textcalls import read_text_calls

    read = read_text_calls(failed.generation, prompt.tools.specs, prompt)
    if not read.calls or any(call.problem for call in read.calls):
        raise failed
    calls = calls_from_text(read.calls, prompt)
    return Reply(read.text, calls, finish="tool_calls", model=options.model)


def format_of(spec: ToolSpec) -> Mapping[str, Any]:
    schema = {"name": spec.name, "schema": dict(spec.parameters)}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def fits_spec(call: ToolCall, spec: ToolSpec) -> bool:
    """Return True if a call is one of this tool, with all required fields."""
    required = set(spec.parameters.get("required", ()))
    return call.name == spec.name and required <= set(mapping(json.loads(call.arguments)))


def convert_to_call(reply: Reply, spec: ToolSpec, prompt: Prompt) -> Reply:
    """Return a reply whose text is the arguments of a call as that call."""
    if reply.tool_calls or reply.finish == "length":
        return reply
    arguments = read_arguments(reply.text.strip()) if reply.text.strip() else None
    if arguments is None or not fits_spec(ToolCall("", spec.name, arguments), spec):
        return reply
    return replace(reply, text="", tool_calls=make_calls([(spec.name, arguments)], prompt))
