"""What a server answered to a call, as a result for the model.

What always holds: text and images are bounded, an image is one, and nothing here is trusted.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from nanobot.security.names import printable
from nanobot.tooling import ToolResult
from nanobot.tools.reading import image_type

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock

MOST_TEXT = 400_000
"""Characters of an answer that are kept at all."""

MOST_IMAGES = 4
MOST_IMAGE = 5_000_000
"""Bytes."""

Image = tuple[str, str]


def result_of(answer: CallToolResult) -> ToolResult:
    """The result; structured content stands in for text where there is none."""
    parts, images = _contents(answer.content)
    if not parts and not images and answer.structured_content is not None:
        parts = [json.dumps(answer.structured_content, ensure_ascii=False)]
    text = "\n\n".join(parts) or ("" if images else "[the answer is empty]")
    if len(text) > MOST_TEXT:
        text = f"{text[:MOST_TEXT]}\n[… the rest of {len(text):,} characters was not kept]"
    return ToolResult(text or _counted(images), is_error=answer.is_error, images=tuple(images))


def _contents(blocks: Iterable[ContentBlock]) -> tuple[list[str], list[Image]]:
    texts: list[str] = []
    images: list[Image] = []
    for item in _items(blocks):
        if isinstance(item, str):
            texts.append(item)
        elif len(images) < MOST_IMAGES:
            images.append(item)
        else:
            texts.append("[one more image is left out]")
    return texts, images


def _items(blocks: Iterable[ContentBlock]) -> Iterator[str | Image]:
    for block in blocks:
        match block.type:
            case "text":
                yield block.text
            case "image":
                yield _image(block.data)
            case "audio":
                yield f"[audio, {printable(block.mime_type)}: not shown]"
            case "resource_link":
                yield f"[link: {printable(block.name)} {printable(block.uri)}]"
            case "resource":
                inner = block.resource
                where = printable(inner.uri)
                text = getattr(inner, "text", None)
                yield f"[{where}]\n{text}" if isinstance(text, str) else f"[binary data: {where}]"


def _image(data: str) -> str | Image:
    if len(data) > MOST_IMAGE * 4 // 3 + 4:
        return f"[an image of more than {MOST_IMAGE:,} bytes is left out]"
    try:
        mime = image_type(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        mime = ""
    return (data, mime) if mime else "[an image that is not png, jpeg, gif or webp is left out]"


def _counted(images: list[Image]) -> str:
    return "\n".join(f"[image, {mime}]" for _, mime in images)
