"""Converts an HTTP request to a `Call`."""

from __future__ import annotations

from aiohttp import BodyPartReader, web

from nanobot.providers.fields import mapping, parse_json
from tests.doubles.graph.errors import BAD_PARAMETER
from tests.doubles.graph.values import Call, Json, Refusal, Upload


async def read_message(http: web.Request) -> Call:
    """Read a post to `messages`. Raise `Refusal` for a body that is not JSON."""
    try:
        body = dict(mapping(parse_json(await http.read())))
    except ValueError:
        raise Refusal(BAD_PARAMETER, "the body is no JSON") from None
    return Call("read" if "status" in body else "messages", body)


async def read_upload(http: web.Request) -> Call:
    """Read a post to `media`. Raise `Refusal` without a file."""
    if http.content_type != "multipart/form-data":
        raise Refusal(BAD_PARAMETER, "the body is no multipart form")
    fields: Json = {}
    file: Upload | None = None
    reader = await http.multipart()
    while (part := await reader.next()) is not None:
        if not isinstance(part, BodyPartReader) or part.name is None:
            continue
        if part.name == "file" and part.filename:
            mime = part.headers.get("Content-Type", "")
            file = Upload(part.filename, mime, bytes(await part.read()))
        else:
            fields[part.name] = await part.text()
    if file is None:
        raise Refusal(BAD_PARAMETER, "(#100) The parameter file is required")
    return Call("upload", fields, file)


def read_query(http: web.Request, operation: str) -> Call:
    """Read a query or a download."""
    return Call(operation, dict(http.query))
