"""Parses servers' answers part by part: an invalid part affects only itself.

The SDK rejects a whole answer for one invalid part, so `mend` rewrites each answer before the SDK
sees it. It keeps the fields of tools that nanobot reads. The parts of a result bypass the SDK (in
`_meta`) to `result_of`. Nothing in an answer is trusted, and all counts are limited."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from nanobot.text import one_line, printable
from nanobot.tooling import ResultFile, ToolResult
from nanobot.tools.read_tools import image_type

_PARTS = "nanobot/parts"
TASKS = "nanobot/needs-tasks"
"""Key in the `_meta` of a listed tool: True if it only runs as a task."""
_MOST_PARTS = 500
MOST_TEXT = 400_000
"""Maximum characters of an answer."""

_MOST_IMAGES = 4
_MOST_IMAGE = 5_000_000
_MOST_FILES = 16
_MOST_LABEL = 100

JsonObject = Mapping[str, object]


def mend(result: dict[str, object]) -> None:
    """Rewrite a server's answer so that the SDK accepts its usable parts."""
    if isinstance(tools := result.get("tools"), list):
        named = (one for one in tools if isinstance(as_object(one).get("name"), str))
        result["tools"] = list(map(mend_tool, named))
        if not isinstance(result.get("nextCursor"), str):
            result.pop("nextCursor", None)
    elif "content" in result or "structuredContent" in result:
        parts = {"content": result.get("content"), "structured": result.get("structuredContent")}
        result.pop("structuredContent", None)  # travels in `_meta` instead
        result |= {
            "content": [],
            "isError": result.get("isError") is True,
            "_meta": {_PARTS: parts},
        }


def mend_tool(given: JsonObject) -> dict[str, object]:
    schema, hints = as_object(given.get("inputSchema")), as_object(given.get("annotations"))
    about = given.get("description")
    support = as_object(given.get("execution")).get("taskSupport")
    return {
        "name": given["name"],
        "description": about if isinstance(about, str) else "",
        "inputSchema": {**schema, "type": "object"},
        "annotations": {"readOnlyHint": hints.get("readOnlyHint") is True},
        "_meta": {TASKS: support == "required"},
    }


def result_of(meta: JsonObject | None, *, is_error: bool) -> ToolResult:
    """Return the result of a call. Structured content replaces missing text. Decodes files, so call
    it off the event loop."""
    given = as_object((meta or {}).get(_PARTS))
    content, structured = given.get("content"), given.get("structured")
    parts = content if isinstance(content, list) else []
    answer = _Answer()
    for part in parts[:_MOST_PARTS]:
        answer.take(as_object(part))
    if len(parts) > _MOST_PARTS:
        answer.texts.append(f"[{len(parts) - _MOST_PARTS:,} more parts were omitted]")
    if not parts and structured is not None:
        answer.texts.append(json.dumps(structured, ensure_ascii=False))
    images, files = tuple(answer.images), tuple(answer.files)
    return ToolResult(answer.text(), is_error=is_error, images=images, files=files)


class _Answer:
    """The parts of a result, sorted into text, images and files."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.images: list[tuple[str, str]] = []
        self.files: list[ResultFile] = []

    def text(self) -> str:
        """Return the text, up to a limit."""
        text = "\n\n".join(self.texts) or "\n".join(f"[image, {mime}]" for _, mime in self.images)
        if len(text) > MOST_TEXT:
            return f"{text[:MOST_TEXT]}\n[… truncated, {len(text):,} characters in total]"
        return text if text or self.files else "[the answer is empty]"

    def take(self, part: JsonObject) -> None:
        """Add one part. An unusable part becomes a line that names it."""
        resource = as_object(part.get("resource"))
        match part:
            case {"type": "text", "text": str(text)}:
                self.texts.append(text)
            case {"type": "image" | "audio" as kind, "data": str(data)}:
                self._add_data(data, part, kind)
            case {"type": "resource_link", "uri": str()}:
                self.texts.append(describe_link(part))
            case {"type": "resource", "resource": {"blob": str(data)}}:
                self._add_data(data, resource, name_of_file(resource.get("uri")))
            case {"type": "resource", "resource": {"text": str(text)}}:
                self.texts.append(f"[{clean_label(resource.get('uri'))}]\n{text}")
            case _:
                about = clean_label(part.get("type"))
                self.texts.append(f"[unusable part: {about}]")
                self.texts += [said] if isinstance(said := part.get("text"), str) else []

    def _add_data(self, data: str, part: JsonObject, name: str) -> None:
        """Add a supported image to the prompt, or any other data as a file."""
        mime = one_line(str(part.get("mimeType") or ""), _MOST_LABEL)
        try:
            content = base64.b64decode(data, validate=True)
        except ValueError:
            self.texts.append(f"[{clean_label(name)}: unreadable data]")
            return
        found = image_type(content)
        if found and len(content) <= _MOST_IMAGE and len(self.images) < _MOST_IMAGES:
            self.images.append((data, found))
        elif len(self.files) < _MOST_FILES:
            self.files.append(ResultFile(name, mime, content))
        else:
            self.texts.append(f"[{clean_label(name)}: omitted, more than {_MOST_FILES} files]")


def as_object(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}


def clean_label(value: object) -> str:
    return printable(str(value))[:_MOST_LABEL]


def describe_link(part: JsonObject) -> str:
    name, size = part.get("name") or part.get("title"), part.get("size")
    kind = part.get("mimeType")
    known = [clean_label(kind)] if isinstance(kind, str) else []
    known += [f"{size:,} bytes"] if isinstance(size, int) else []
    more = f" ({', '.join(known)})" if known else ""
    return f"[link: {f'{clean_label(name)} ' if name else ''}{printable(str(part['uri']))}{more}]"


def name_of_file(uri: object) -> str:
    try:
        path = urlsplit(str(uri)).path
    except ValueError:
        return "file"
    return one_line(PurePosixPath(unquote(path)).name) or "file"
