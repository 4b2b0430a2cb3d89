"""From a request's JSON to what is asked, pure: OpenAI's Chat Completions and Responses.

What steers a model is not taken (temperature, tools of the client, output formats): nanobot has its
own model and tools. Of the messages the last one of the user is what is said; the others are what
was said before, which counts only for a request without a conversation. Files come as `data:`
addresses; an address elsewhere is refused, because whoever can make nanobot fetch one learns
something from it.
"""

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
from nanobot.text import valid_unicode
from nanobot_api.problems import Problem, invalid

MODEL = "nanobot"
"""The name of the one model."""

MOST_FILES = 20
LONGEST_NAME = 512
"""Characters of what a client calls a conversation or a repetition."""

_CLEAN = re.compile(r"(?=.*[A-Za-z])[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_DATA = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),", re.ASCII)
_RESERVED = ("hash-", "once-", "resp-")

Json = Mapping[str, Any]


class Attachment(Struct, frozen=True):
    """A file that came with the message."""

    data: bytes
    kind: MediaKind
    mime: str
    name: str = ""


class Ask(Struct, frozen=True):
    """What is asked. `conversation` is what the client calls it, `previous` the response that this
    follows; neither: the request stands for itself, after `context`. `store`: it may be followed.
    `with_usage`: a stream ends with what it used. `digest` is that of the question."""

    text: str
    files: tuple[Attachment, ...] = ()
    context: tuple[Said, ...] = ()
    conversation: str = ""
    previous: str = ""
    stream: bool = False
    store: bool = False
    with_usage: bool = False
    digest: str = ""


def chat_request(body: bytes, header: str = "") -> Ask:
    """A request for `/chat/completions`; `header` is what `X-Nanobot-Session` said. Raises
    `Problem`."""
    data = _object_of(body)
    if data.get("n") not in (None, 1):
        raise invalid("only one choice (n = 1) is given", "n")
    messages = data.get("messages")
    if not isinstance(messages, list) or not messages:
        raise invalid("`messages` must be a list with at least one message", "messages")
    options = data.get("stream_options")
    return _ask(
        data,
        [_mapping(message, "messages") for message in messages],
        "messages",
        header,
        with_usage=isinstance(options, dict) and options.get("include_usage") is True,
    )


def response_request(body: bytes, header: str = "") -> Ask:
    """A request for `/responses`. Raises `Problem`."""
    data = _object_of(body)
    if data.get("background") is True:
        raise invalid("responses in the background are not supported; stream instead", "background")
    given = data.get("input")
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if not isinstance(given, list) or not given:
        raise invalid("`input` must be a text or a list of messages", "input")
    items = [_mapping(item, "input") for item in given]
    messages = [item for item in items if item.get("type", "message") == "message"]
    instructions = data.get("instructions")
    if isinstance(instructions, str) and instructions.strip():
        messages.insert(0, {"role": "system", "content": instructions})
    previous = _name(data.get("previous_response_id"), "previous_response_id")
    if previous and data.get("conversation"):
        raise invalid("give `conversation` or `previous_response_id`, not both", "conversation")
    return _ask(
        data,
        messages,
        "input",
        header,
        previous=previous,
        store=data.get("store") is not False,
    )


def clean_name(conversation: str) -> str:
    """What a conversation is called here: as the client does where that is plain, else a hash. No
    two names share one, and none is made of digits alone, which would be a thread."""
    if _CLEAN.fullmatch(conversation) and not conversation.startswith(_RESERVED):
        return conversation
    digest = sha256(conversation.encode("utf-8", "surrogatepass")).hexdigest()
    return f"hash-{digest[:32]}"


def _ask(
    data: Json,
    messages: Sequence[Json],
    param: str,
    header: str,
    *,
    previous: str = "",
    store: bool = False,
    with_usage: bool = False,
) -> Ask:
    model = data.get("model")
    if model != MODEL:
        raise Problem(
            404,
            f"The model {str(model)[:100]!r} does not exist; the model here is {MODEL!r}.",
            "model_not_found",
            param="model",
        )
    last = max((n for n, one in enumerate(messages) if one.get("role") == "user"), default=-1)
    if last < 0:
        raise invalid("no message of the role `user` is there to be answered", param)
    text, files = _content(messages[last].get("content"), param)
    if not text.strip() and not files:
        raise invalid("the last message of the user is empty", param)
    named = _name(data.get("conversation"), "conversation")
    if not named and not previous and not _is_errand(messages, text):
        named = _name(header, "X-Nanobot-Session") or _session_of(data)
    return Ask(
        text,
        files,
        tuple(_said_before(messages[:last], param)),
        named,
        previous,
        data.get("stream") is True,
        store,
        with_usage,
        _digest(data),
    )


def _digest(data: Json) -> str:
    """The same for the same question, however its answer is to come."""
    asked = {key: value for key, value in data.items() if not key.startswith("stream")}
    text = json.dumps(asked, sort_keys=True)
    return sha256(text.encode()).hexdigest()


def _session_of(data: Json) -> str:
    """What else names a conversation: `metadata.session_id`, as some clients send it for those who
    trace requests, or the user."""
    metadata = data.get("metadata")
    session = metadata.get("session_id") if isinstance(metadata, dict) else None
    return _name(session, "metadata.session_id") or _name(data.get("user"), "user")


def _is_errand(messages: Sequence[Json], text: str) -> bool:
    """Whether a client wants something made of a chat (a title, tags) and says it as Open WebUI
    does, beside the chat but under its name."""
    return len(messages) == 1 and text.startswith("### Task:") and "<chat_history>" in text


def _object_of(body: bytes) -> Json:
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        raise invalid("the body is not valid JSON") from None
    return _mapping(data, None)


def _mapping(value: object, param: str | None) -> Json:
    if not isinstance(value, dict):
        raise invalid("an object is expected here", param)
    return value


def _name(value: object, param: str) -> str:
    """A name that a client gave, as a text or in an object with an `id`."""
    if isinstance(value, dict):
        value = value.get("id")
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > LONGEST_NAME:
        raise invalid(f"`{param}` must be a text of at most {LONGEST_NAME} characters", param)
    return value.strip()


def _said_before(messages: Sequence[Json], param: str) -> list[Said]:
    """The messages before, as a conversation of user and assistant; instructions of the program
    are told as such."""
    said = []
    for message in messages:
        role = message.get("role")
        if role not in ("system", "developer", "user", "assistant"):
            continue  # results of the client's own tools
        text, files = _content(message.get("content"), param)
        text = "\n".join(filter(None, (text, *(f"[{file.kind}]" for file in files))))
        if not text.strip():
            continue
        if role in ("system", "developer"):
            text = f"[instructions of the program that asks]\n{text}"
        said.append(Said("assistant" if role == "assistant" else "user", text))
    return said


def _content(content: object, param: str) -> tuple[str, tuple[Attachment, ...]]:
    """The text of a message, and its files."""
    if content is None or isinstance(content, str):
        return valid_unicode(content or ""), ()
    if not isinstance(content, list):
        raise invalid("`content` must be a text or a list of parts", param)
    texts, files = list[str](), list[Attachment]()
    for part in content:
        one = _part(_mapping(part, param), param)
        if isinstance(one, str):
            texts.append(one)
        else:
            files.append(one)
    if len(files) > MOST_FILES:
        raise invalid(f"a message has at most {MOST_FILES} files", param)
    return "\n".join(texts), tuple(files)


def _part(part: Json, param: str) -> str | Attachment:
    kind = part.get("type")
    if kind in ("text", "input_text", "output_text", "refusal"):
        text = part.get("text", part.get("refusal"))
        if not isinstance(text, str):
            raise invalid("a part's `text` must be a text", param)
        return valid_unicode(text)
    if kind in ("image_url", "input_image"):
        image = part.get("image_url")
        data, mime = _data(image.get("url") if isinstance(image, dict) else image, param)
        return Attachment(data, "image", mime)
    if kind in ("file", "input_file"):
        file = _mapping(part.get("file", part), param)
        data, mime = _data(file.get("file_data"), param)
        name = file.get("filename")
        return Attachment(data, "document", mime, name if isinstance(name, str) else "")
    if kind == "input_audio":
        audio = _mapping(part.get("input_audio"), param)
        format = str(audio.get("format") or "wav")
        return Attachment(_decoded(audio.get("data"), param), "voice", f"audio/{format}")
    raise invalid(f"parts of the type {str(kind)[:50]!r} are not supported", param)


def _data(url: object, param: str) -> tuple[bytes, str]:
    found = _DATA.match(url) if isinstance(url, str) else None
    if found is None or ";base64" not in found[2].lower():
        raise invalid(
            "files must be in the request itself, as data:TYPE;base64,… addresses; nothing is "
            "fetched from elsewhere",
            param,
            "invalid_image_url",
        )
    assert isinstance(url, str)
    return _decoded(url[found.end() :], param), found[1].strip().lower()


def _decoded(text: object, param: str) -> bytes:
    try:
        data = base64.b64decode(text if isinstance(text, str) else "?", validate=True)
    except (binascii.Error, ValueError):
        raise invalid("a file is not valid base64", param) from None
    if not data:
        raise invalid("a file is empty", param)
    return data
