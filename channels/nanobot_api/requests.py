"""Parsers for requests of OpenAI's Chat Completions and Responses. Pure.

nanobot has its own model and tools: fields that steer a model (temperature, the client's tools) are
ignored, and a request that depends on them is rejected. The last message must be the user's. The
messages before it are the context of a request without a conversation. Files must be `data:`
addresses, because a download would give information to the server of the address."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from msgspec import Struct

from nanobot.bus.events import MediaKind, Said
from nanobot.parsing import TooManyValues, parse_json
from nanobot.text import valid_unicode
from nanobot_api.problems import Problem, invalid

MODEL = "nanobot"
"""The name of the only model."""

MOST_FILES = 20
MOST_MESSAGES = 2_048
"""The limit of Azure OpenAI. Source:
https://learn.microsoft.com/azure/ai-services/openai/quotas-limits"""
MOST_PARTS = 4_096
"""In all messages together."""
LONGEST_NAME = 512
"""Characters of a client's name for a conversation or a repetition."""
LONGEST_SCHEMA = 50_000
"""Characters of the schema of an answer."""

_SYSTEM = ("system", "developer")

_CLEAN = re.compile(r"(?=.*[A-Za-z])[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_DATA = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),", re.ASCII)
_RESERVED = ("hash-", "once-", "resp-")

Json = Mapping[str, Any]


class Attachment(Struct, frozen=True):
    """A file in the message."""

    data: bytes
    kind: MediaKind
    mime: str
    name: str = ""


class Headers(Struct, frozen=True):
    """Header fields. `session` names a conversation. `is_task`: the program asks for itself (a
    title for a chat), not for its person. `token` identifies repetitions."""

    session: str = ""
    is_task: bool = False
    token: str = ""


class Ask(Struct, frozen=True):
    """A request. `conversation` is the client's name for it, `previous` the response that it
    follows. A request with neither is answered by itself, after `context`. `instructions` are the
    system messages. `is_task`: see `Headers`. `schema` is the JSON Schema of the answer as text.
    `ignored` are fields without effect. `store`: it may be followed. `with_usage`: a stream ends
    with its usage. `digest` is that of the question, if it is stored."""

    text: str
    files: tuple[Attachment, ...] = ()
    context: tuple[Said, ...] = ()
    instructions: str = ""
    conversation: str = ""
    previous: str = ""
    is_task: bool = False
    schema: str = ""
    ignored: tuple[str, ...] = ()
    stream: bool = False
    store: bool = False
    with_usage: bool = False
    digest: str = ""


def chat_request(body: bytes, headers: Headers) -> Ask:
    """Parse a request for `/chat/completions`. Raises `Problem`."""
    data = _object_of(body)
    if data.get("n") not in (None, 1):
        raise invalid("only one choice (n = 1) is supported", "n")
    messages = data.get("messages")
    if not isinstance(messages, list) or not messages:
        raise invalid("`messages` must be a list with at least one message", "messages")
    options = data.get("stream_options")
    return _ask(
        data,
        _objects(messages, "messages"),
        "messages",
        headers,
        _schema_of(data.get("response_format"), "response_format"),
        with_usage=isinstance(options, dict) and options.get("include_usage") is True,
    )


def response_request(body: bytes, headers: Headers) -> Ask:
    """Parse a request for `/responses`. Raises `Problem`."""
    data = _object_of(body)
    if data.get("background") is True:
        raise invalid("background responses are not supported. Use streaming instead", "background")
    given = data.get("input")
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if not isinstance(given, list) or not given:
        raise invalid("`input` must be text or a list of messages", "input")
    messages = list(filter(None, map(_message_of, _objects(given, "input"))))
    instructions = data.get("instructions")
    if isinstance(instructions, str) and instructions.strip():
        messages.insert(0, {"role": "system", "content": instructions})
    previous = _name(data.get("previous_response_id"), "previous_response_id")
    if previous and data.get("conversation"):
        raise invalid("give `conversation` or `previous_response_id`, not both", "conversation")
    text = data.get("text")
    form = text.get("format") if isinstance(text, dict) else None
    return _ask(
        data,
        messages,
        "input",
        headers,
        _schema_of(form, "text.format"),
        previous=previous,
        store=data.get("store") is not False,
    )


def refuse_items(body: bytes) -> None:
    """Raise `Problem` if a new conversation would have items."""
    if body.strip() and _object_of(body).get("items"):
        raise invalid("new conversations start empty here. Send the first message instead", "items")


def clean_name(conversation: str) -> str:
    """Return the name of a conversation here: the client's if it is plain, else a hash. No two
    share one, and none consists only of digits, which would be a thread."""
    if _CLEAN.fullmatch(conversation) and not conversation.startswith(_RESERVED):
        return conversation
    digest = sha256(conversation.encode("utf-8", "surrogatepass")).hexdigest()
    return f"hash-{digest[:32]}"


def _ask(
    data: Json,
    messages: Sequence[Json],
    param: str,
    headers: Headers,
    schema: str,
    *,
    previous: str = "",
    store: bool = False,
    with_usage: bool = False,
) -> Ask:
    model = data.get("model")
    if model != MODEL:
        raise Problem(
            404,
            f"The model {str(model)[:100]!r} does not exist. The model here is {MODEL!r}.",
            "model_not_found",
            param="model",
        )
    ignored = _list_ignored_tools(data)
    last = _last_of_user(messages, param)
    text, files = _content(messages[last].get("content"), param)
    if not text.strip() and not files:
        raise invalid("the user's last message is empty", param)
    is_task = headers.is_task or _is_titling(messages, text)
    named = _name(data.get("conversation"), "conversation")
    if not named and not previous and not is_task:
        named = _name(headers.session, "X-Nanobot-Session") or _session_of(data)
    others = [*messages[:last], *messages[last + 1 :]]
    system = [one for one in others if one.get("role") in _SYSTEM]
    return Ask(
        text,
        files,
        tuple(_context_of(others, param)),
        "\n\n".join(said.text for said in _context_of(system, param)),
        named,
        previous,
        is_task,
        schema,
        ignored,
        data.get("stream") is True,
        store,
        with_usage,
        _digest(data) if store or headers.token else "",
    )


def _message_of(item: Json) -> Json | None:
    """Return an input item of Responses as a message, or None for any other type. A call and its
    result have no content."""
    kind = str(item.get("type", "message"))
    if kind == "message":
        return item
    if kind.endswith("_call_output"):
        return {"role": "tool"}
    return {"role": "assistant", "tool_calls": [item]} if kind.endswith("_call") else None


def _last_of_user(messages: Sequence[Json], param: str) -> int:
    """Return the index of the message to answer. Raises `Problem` if the last one isn't the user's:
    an earlier one was answered before, and a second answer could repeat actions."""
    spoken = [
        (n, one.get("role"))
        for n, one in enumerate(messages)
        if one.get("role") not in _SYSTEM and not _is_placeholder(one)
    ]
    if not any(role == "user" for _, role in spoken):
        raise invalid("there is no message with the role `user`", param)
    at, role = spoken[-1]
    if role == "assistant":
        raise invalid(
            "the last message is the assistant's, and nanobot doesn't continue its own answers."
            " End with a user message",
            param,
            "last_message_not_user",
        )
    if role != "user":
        raise invalid(
            "the last message is a tool result, but nanobot calls only its own tools. End"
            " with a user message",
            param,
            "last_message_not_user",
        )
    return at


def _is_placeholder(message: Json) -> bool:
    """Return True for an empty message of the assistant, which some clients put at the end."""
    has_calls = message.get("tool_calls") or message.get("function_call")
    return message.get("role") == "assistant" and not message.get("content") and not has_calls


def _list_ignored_tools(data: Json) -> tuple[str, ...]:
    """Return the ignored fields with tools of the client. Raises `Problem` if the request depends
    on a call of one."""
    choice = data.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        inner = choice.get("allowed_tools")  # where Chat Completions has the mode
        choice = (inner if isinstance(inner, dict) else choice).get("mode")
    for param, value in (("tool_choice", choice), ("function_call", data.get("function_call"))):
        if value not in (None, "auto", "none"):
            raise invalid(
                f"`{param}` asks to call the client's tools, but nanobot calls only its own."
                " For an answer in JSON, use `response_format`",
                param,
                "tools_not_supported",
            )
    return tuple(name for name in ("tools", "functions") if data.get(name))


def _schema_of(form: object, param: str) -> str:
    """Return the JSON Schema of the answer as text, empty for plain text. Raises `Problem`."""
    if form is None:
        return ""
    form = _mapping(form, param)
    kind = form.get("type")
    if kind == "text":
        return ""
    if kind not in ("json_object", "json_schema"):
        raise invalid(f"the format {str(kind)[:50]!r} is not supported", param)
    inner = form.get("json_schema")
    schema = inner.get("schema") if isinstance(inner, dict) else form.get("schema")
    if schema is None and kind == "json_schema":
        raise invalid("a format of type `json_schema` needs a `schema`", param)
    schema = {"type": "object"} if schema is None else _mapping(schema, param)
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise invalid("a schema's `required` field must be a list of names", param)
    if schema.get("type", "object") != "object" or not isinstance(
        schema.get("properties", {}), dict
    ):
        raise invalid('the schema of an answer must be of type "object"', param)
    text = json.dumps(schema)
    if len(text) > LONGEST_SCHEMA:
        raise invalid(f"a schema can have at most {LONGEST_SCHEMA:,} characters", param)
    return text


def _digest(data: Json) -> str:
    """Return a digest of the question, the same for streamed and whole answers."""
    asked = {key: value for key, value in data.items() if not key.startswith("stream")}
    text = json.dumps(asked, sort_keys=True)
    return sha256(text.encode()).hexdigest()


def _session_of(data: Json) -> str:
    """Return the name of the conversation in the body. `user` names a person."""
    metadata = data.get("metadata")
    session = metadata.get("session_id") if isinstance(metadata, dict) else None
    return _name(session, "metadata.session_id")


def _is_titling(messages: Sequence[Json], text: str) -> bool:
    """Return True if Open WebUI asks for a title or tags, which it sends under the name of the
    chat. This only keeps the request out of the conversation and marks it as untrusted. No trust
    depends on it."""
    return len(messages) == 1 and text.startswith("### Task:") and "<chat_history>" in text


def _object_of(body: bytes) -> Json:
    try:
        data = parse_json(body)
    except TooManyValues as error:
        raise _too_much(str(error)) from None
    except ValueError:
        raise invalid("the body is not valid JSON") from None
    return _mapping(data, None)


def _too_much(what: str, param: str | None = None) -> Problem:
    return Problem(413, f"The request has {what}.", "request_too_large", param=param)


def _objects(values: list[Any], param: str) -> list[Json]:
    """Return the messages of a request. Raises `Problem` for too many messages or parts."""
    if len(values) > MOST_MESSAGES:
        raise _too_much(f"more than {MOST_MESSAGES:,} messages", param)
    messages = [_mapping(value, param) for value in values]
    contents = (message.get("content") for message in messages)
    if sum(len(one) for one in contents if isinstance(one, list)) > MOST_PARTS:
        raise _too_much(f"more than {MOST_PARTS:,} parts", param)
    return messages


def _mapping(value: object, param: str | None) -> Json:
    if not isinstance(value, dict):
        raise invalid("an object is expected here", param)
    return value


def _name(value: object, param: str) -> str:
    """Return a name that a client gave, as a text or in an object with an `id`."""
    if isinstance(value, dict):
        value = value.get("id")
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > LONGEST_NAME:
        raise invalid(f"`{param}` must be text of at most {LONGEST_NAME} characters", param)
    return value.strip()


def _context_of(messages: Sequence[Json], param: str) -> list[Said]:
    """Return the earlier messages as a conversation of user and assistant. Instructions of the
    program are marked."""
    said = []
    for message in messages:
        role = message.get("role")
        if role not in (*_SYSTEM, "user", "assistant"):
            continue  # results of the client's own tools
        text, files = _content(message.get("content"), param)
        text = "\n".join(filter(None, (text, *(f"[{file.kind}]" for file in files))))
        if not text.strip():
            continue
        if role in _SYSTEM:
            text = f"[instructions from the calling program]\n{text}"
        said.append(Said("assistant" if role == "assistant" else "user", text))
    return said


def _content(content: object, param: str) -> tuple[str, tuple[Attachment, ...]]:
    """Return the text of a message, and its files."""
    if content is None or isinstance(content, str):
        return valid_unicode(content or ""), ()
    if not isinstance(content, list):
        raise invalid("`content` must be text or a list of parts", param)
    texts, files = list[str](), list[Attachment]()
    for part in content:
        one = _part(_mapping(part, param), param)
        if isinstance(one, str):
            texts.append(one)
        else:
            files.append(one)
    if len(files) > MOST_FILES:
        raise invalid(f"a message can have at most {MOST_FILES} files", param)
    return "\n".join(texts), tuple(files)


def _part(part: Json, param: str) -> str | Attachment:
    kind = part.get("type")
    if kind in ("text", "input_text", "output_text", "refusal"):
        text = part.get("text", part.get("refusal"))
        if not isinstance(text, str):
            raise invalid("a part's `text` must be a string", param)
        return valid_unicode(text)
    if kind in ("image_url", "input_image"):
        image = part.get("image_url")
        data, mime = _data(image.get("url") if isinstance(image, dict) else image, param)
        return Attachment(data, "image", mime)
    if kind in ("file", "input_file"):
        file = _mapping(part.get("file", part), param)
        data, mime = _data(file.get("file_data"), param)
        name = file.get("filename")
        name = name[:LONGEST_NAME] if isinstance(name, str) else ""
        return Attachment(data, "document", mime, name)
    if kind == "input_audio":
        audio = _mapping(part.get("input_audio"), param)
        format = str(audio.get("format") or "wav")[:LONGEST_NAME]
        return Attachment(_decode_base64(audio.get("data"), param), "audio", f"audio/{format}")
    raise invalid(f"parts of type {str(kind)[:50]!r} are not supported", param)


def _data(url: object, param: str) -> tuple[bytes, str]:
    found = _DATA.match(url) if isinstance(url, str) else None
    if found is None or ";base64" not in found[2].lower():
        raise invalid(
            "files must be in the request itself, as data:TYPE;base64,… addresses. nanobot "
            "downloads nothing",
            param,
            "invalid_image_url",
        )
    assert isinstance(url, str)
    return _decode_base64(url[found.end() :], param), found[1].strip().lower()


def _decode_base64(text: object, param: str) -> bytes:
    try:
        data = base64.b64decode(text if isinstance(text, str) else "?", validate=True)
    except (binascii.Error, ValueError):
        raise invalid("a file is not valid base64", param) from None
    if not data:
        raise invalid("a file is empty", param)
    return data
