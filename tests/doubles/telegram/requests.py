"""Converts an HTTP request to a `Call`: query strings, forms, JSON and multipart."""

from __future__ import annotations

from aiohttp import BodyPartReader, web

from nanobot.providers.fields import mapping, parse_json
from tests.doubles.telegram.schema import Schema
from tests.doubles.telegram.values import Call, Upload, bad_request

_JSON = "application/json"


async def read_call(http: web.Request, method: str, schema: Schema) -> Call:
    """Read the call in `http`. A file sent as a part `x` is also the parameter `x`, as
    "attach://x".

    Raise `Refusal` for a body that does not match its type."""
    plain: dict[str, str] = dict(http.query)
    params: dict[str, object] = {}
    files: dict[str, Upload] = {}
    if http.content_type == "multipart/form-data":
        await _read_parts(http, plain, files)
    elif http.content_type == _JSON:
        params = _read_json(await http.read())
    elif http.method == "POST":
        form = (await http.post()).items()
        plain |= {name: value for name, value in form if isinstance(value, str)}
    decoded = {name: schema.decode(method, name, value) for name, value in plain.items()}
    known = schema.methods.get(method, {})
    attached = {name: f"attach://{name}" for name in files if name in known}
    params = {
        name: schema.decode(method, name, value) if isinstance(value, str) else value
        for name, value in params.items()
    }
    return Call(method, {**attached, **decoded, **params}, files)


async def _read_parts(http: web.Request, plain: dict[str, str], files: dict[str, Upload]) -> None:
    reader = await http.multipart()
    while (part := await reader.next()) is not None:
        if not isinstance(part, BodyPartReader) or part.name is None:
            continue
        if part.filename is None:
            plain[part.name] = await part.text()
        else:
            content = bytes(await part.read())
            mime = part.headers.get("Content-Type", "")
            files[part.name] = Upload(part.filename, mime, content)


def _read_json(body: bytes) -> dict[str, object]:
    try:
        return dict(mapping(parse_json(body))) if body else {}
    except ValueError:
        raise bad_request("can't parse JSON object") from None
