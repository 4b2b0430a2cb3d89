"""The JSON that clients of OpenAI's API read: answers, and the events of a stream. Pure.

A turn has more than its answer: text between tool calls, running tools, questions to the owner. In
a stream of Chat Completions, text in between is part of the text, and the rest is in
`delta.nanobot`, which clients ignore. In one of Responses, text in between is a separate output
message (`commentary`), and the rest are events `response.nanobot.progress`."""

from __future__ import annotations

import json
from collections.abc import Iterator

from msgspec import Struct

from nanobot_api.problems import Problem, problem_of
from nanobot_api.records import Answer
from nanobot_api.requests import MODEL

Json = dict[str, object]

OWNED_BY = "nanobot"
CREATED = 1_700_000_000
"""A made-up time, because models have a time of creation."""


class Facts(Struct, frozen=True):
    """The common fields of an answer's parts: the request's id, its time in seconds since the
    epoch, the client's names for the conversation and the previous response, whether a stream ends
    with its usage, and the JSON Schema of the answer."""

    id: str
    created: int
    conversation: str = ""
    previous: str = ""
    store: bool = False
    with_usage: bool = False
    schema: str = ""

    @property
    def format(self) -> Json:
        """The form of the answer, for Responses."""
        if not self.schema:
            return {"type": "text"}
        return {"type": "json_schema", "name": "answer", "schema": json.loads(self.schema)}


def model() -> Json:
    """Return the only model."""
    return {"id": MODEL, "object": "model", "created": CREATED, "owned_by": OWNED_BY}


def models() -> Json:
    """Return the list of models."""
    return {"object": "list", "data": [model()]}


def new_conversation(id: str, created: int) -> Json:
    """Return an empty conversation."""
    return {"id": id, "object": "conversation", "created_at": created, "metadata": {}}


def _event(data: object, name: str = "") -> bytes:
    line = f"data: {json.dumps(data)}\n\n"
    return (f"event: {name}\n{line}" if name else line).encode()


KEEP_ALIVE = b": keep-alive\n\n"


class ChatShape:
    """The shape of Chat Completions."""

    def __init__(self, facts: Facts) -> None:
        self._facts, self._id = facts, f"chatcmpl-{facts.id}"

    def whole(self, answer: Answer) -> Json:
        """Return the complete answer."""
        message = {"role": "assistant", "content": answer.whole, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        return {**self._common("chat.completion"), "choices": [choice], "usage": _usage(answer)}

    def begin(self) -> Iterator[bytes]:
        """Begin a stream."""
        yield self._chunk({"role": "assistant", "content": ""})

    def text(self, delta: str) -> Iterator[bytes]:
        """Add text."""
        yield self._chunk({"content": delta})

    def next_block(self) -> Iterator[bytes]:
        """Begin text that does not continue the text so far."""
        yield self._chunk({"content": "\n\n"})

    def progress(self, kind: str, text: str) -> Iterator[bytes]:
        """Show progress to a person."""
        yield self._chunk({"nanobot": {"type": kind, "text": text}})

    def end(self, answer: Answer) -> Iterator[bytes]:
        """End the stream after all text."""
        yield self._chunk({}, "stop")
        if self._facts.with_usage:
            chunk = self._common("chat.completion.chunk")
            yield _event({**chunk, "choices": [], "usage": _usage(answer)})
        yield b"data: [DONE]\n\n"

    def fail(self, problem: Problem) -> Iterator[bytes]:
        """End the stream without an answer."""
        yield _event({"error": problem.error})

    def _common(self, kind: str) -> Json:
        created = self._facts.created
        return {"id": self._id, "object": kind, "created": created, "model": MODEL}

    def _chunk(self, delta: Json, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _event({**self._common("chat.completion.chunk"), "choices": [choice]})


def _usage(answer: Answer) -> Json:
    prompt, completion = answer.prompt_tokens, answer.completion_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


class ResponseShape:
    """The shape of Responses."""

    def __init__(self, facts: Facts) -> None:
        self._facts, self._id = facts, f"resp_{facts.id}"
        self._number = 0
        """The number of the next event."""
        self._output: list[Json] = []
        """The complete messages."""
        self._open: list[str] | None = None
        """The text of the incomplete message."""

    def whole(self, answer: Answer) -> Json:
        """Return the complete answer."""
        return self._response("completed", [self._message(0, answer.whole)], answer)

    def repeat(self, answer: Answer | None) -> Json:
        """Return a stored response, which may be in progress or have failed."""
        if answer is None:
            return self._response("in_progress", [])
        if answer.error:
            return self._failure(problem_of(answer.error, answer.whole))
        return self.whole(answer)

    def begin(self) -> Iterator[bytes]:
        """Begin a stream."""
        yield self._next("response.created", response=self._response("in_progress", []))
        yield self._next("response.in_progress", response=self._response("in_progress", []))

    def text(self, delta: str) -> Iterator[bytes]:
        """Add text."""
        index = len(self._output)
        if self._open is None:
            self._open = []
            item = {**self._message(index, "", "in_progress"), "content": []}
            yield self._next("response.output_item.added", output_index=index, item=item)
            part = _text_part("")
            yield self._next("response.content_part.added", **self._place(index), part=part)
        self._open.append(delta)
        yield self._next(
            "response.output_text.delta", **self._place(index), delta=delta, logprobs=[]
        )

    def next_block(self) -> Iterator[bytes]:
        """Begin text that does not continue the text so far."""
        yield from self._close("commentary")

    def progress(self, kind: str, text: str) -> Iterator[bytes]:
        """Show progress to a person."""
        yield self._next("response.nanobot.progress", progress=kind, text=text)

    def end(self, answer: Answer) -> Iterator[bytes]:
        """End the stream after all text."""
        if self._open is None and not self._output:
            yield from self.text("")
        yield from self._close("final_answer")
        done = self._response("completed", self._output, answer)
        yield self._next("response.completed", response=done)

    def fail(self, problem: Problem) -> Iterator[bytes]:
        """End the stream without an answer."""
        yield self._next("response.failed", response=self._failure(problem))

    def _failure(self, problem: Problem) -> Json:
        code = "rate_limit_exceeded" if problem.status == 429 else "server_error"
        error = {"code": code, "message": problem.message}
        return {**self._response("failed", self._output), "error": error}

    def _close(self, phase: str) -> Iterator[bytes]:
        if self._open is None:
            return
        index, text, self._open = len(self._output), "".join(self._open), None
        item = {**self._message(index, text), "phase": phase}
        place = self._place(index)
        yield self._next("response.output_text.done", **place, text=text, logprobs=[])
        yield self._next("response.content_part.done", **place, part=_text_part(text))
        yield self._next("response.output_item.done", output_index=index, item=item)
        self._output.append(item)

    def _next(self, kind: str, **fields: object) -> bytes:
        event = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return _event(event, kind)

    def _place(self, index: int) -> dict[str, object]:
        return {"item_id": self._item(index), "output_index": index, "content_index": 0}

    def _item(self, index: int) -> str:
        return f"msg_{self._facts.id}{index or ''}"

    def _message(self, index: int, text: str, status: str = "completed") -> Json:
        content = [_text_part(text)]
        item: Json = {"id": self._item(index), "type": "message", "role": "assistant"}
        return {**item, "status": status, "content": content}

    def _response(self, status: str, output: list[Json], answer: Answer | None = None) -> Json:
        facts = self._facts
        return {
            "id": self._id,
            "object": "response",
            "created_at": facts.created,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "max_output_tokens": None,
            "model": MODEL,
            "output": list(output),
            "parallel_tool_calls": True,
            "previous_response_id": facts.previous or None,
            "conversation": {"id": facts.conversation} if facts.conversation else None,
            "reasoning": {"effort": None, "summary": None},
            "store": facts.store,
            "temperature": None,
            "text": {"format": facts.format},
            "tool_choice": "auto",
            "tools": [],
            "top_p": None,
            "truncation": "disabled",
            "usage": _response_usage(answer) if answer else None,
            "user": None,
            "metadata": {},
        }


Shape = ChatShape | ResponseShape
"""One of the two forms of an answer, with the same methods."""


def _text_part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _response_usage(answer: Answer) -> Json:
    prompt, completion = answer.prompt_tokens, answer.completion_tokens
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + completion,
    }
