"""The page's static files, read and compressed once. Their addresses have hashes, so browsers keep
them."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from aiohttp import web
from msgspec import Struct

_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".json": "application/manifest+json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
}
_HEADERS = {"Cache-Control": "private, max-age=86400", "Vary": "Accept-Encoding"}
_IMPORTED = {"Cache-Control": "private, no-cache"}  # a module's address has no hash
_GZIP = 31  # zlib's window size, with gzip's header


class Asset(Struct, frozen=True):
    """A static file: its content, the same in gzip, its type, and a hash. `is_imported`: another
    script loads it."""

    body: bytes
    compressed: bytes
    type: str
    hash: str
    is_imported: bool

    def answer(self, request: web.Request) -> web.Response:
        """Return the file in a form that the client accepts."""
        headers, body = dict(_HEADERS), self.body
        if self.is_imported:
            headers |= _IMPORTED | {"ETag": f'"{self.hash}"'}
            if request.headers.get("If-None-Match") == headers["ETag"]:
                return web.Response(status=304, headers=headers)
        if self.type == "image/png":
            return web.Response(body=body, content_type=self.type, headers=headers)
        if _accepts_gzip(request.headers.get("Accept-Encoding", "")):
            headers["Content-Encoding"], body = "gzip", self.compressed
        return web.Response(body=body, content_type=self.type, charset="utf-8", headers=headers)


@cache
def assets() -> Mapping[str, Asset]:
    """Return the static files by name."""
    found = {}
    for place in files("nanobot_web").joinpath("static").iterdir():
        suffix = f".{place.name.rpartition('.')[2]}"
        if suffix in _TYPES:
            body = place.read_bytes()
            compressed = zlib.compress(body, 9, wbits=_GZIP)
            hash = hashlib.sha256(body).hexdigest()[:16]
            is_imported = suffix == ".js" and place.name != "app.js"
            found[place.name] = Asset(body, compressed, _TYPES[suffix], hash, is_imported)
    return found


def asset_address(name: str) -> str:
    """Return the address of a static file in the page."""
    return f"/static/{name}?{assets()[name].hash}"


def _accepts_gzip(accepted: str) -> bool:
    """Return True if an `Accept-Encoding` header names gzip, and not with the weight 0."""
    for one in accepted.lower().split(","):
        name, _, weight = one.replace(" ", "").partition(";q=")
        if name == "gzip":
            return not weight or bool(weight.strip("0."))
    return False
