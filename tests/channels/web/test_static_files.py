"""Static files are sent in gzip, only to clients that accept it."""

from __future__ import annotations

import asyncio
import gzip
from importlib.resources import files
from pathlib import Path

import pytest
from yarl import URL

from tests.channels.web.support import serving


async def read_bytes(base: str, path: str, *lines: str) -> tuple[str, bytes]:
    """Return the head and the body of an answer, as they are on the wire."""
    host = base.removeprefix("http://")
    name, _, port = host.partition(":")
    reader, writer = await asyncio.open_connection(name, int(port))
    head = [f"GET {path} HTTP/1.1", f"Host: {host}", "Connection: close", *lines, "", ""]
    writer.write("\r\n".join(head).encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    top, _, body = answer.partition(b"\r\n\r\n")
    return top.decode(), body


@pytest.mark.parametrize("name", ["app.js", "style.css", "icon.svg"])
async def test_a_static_file_is_compressed_for_clients_that_accept_gzip(
    tmp_path: Path, name: str
) -> None:
    plain = files("nanobot_web").joinpath("static", name).read_bytes()
    async with serving(tmp_path / "home") as web, web.visit() as visit:
        cookies = visit.session.cookie_jar.filter_cookies(URL(web.base))
        cookie = "Cookie: " + "; ".join(f"{key}={one.value}" for key, one in cookies.items())
        for accepted in ("gzip", "br, GZIP;q=0.5", "gzip ; q=1.0, *;q=0"):
            lines = (cookie, f"Accept-Encoding: {accepted}")
            head, body = await read_bytes(web.base, f"/static/{name}", *lines)
            assert "\r\nContent-Encoding: gzip\r\n" in head
            assert f"\r\nContent-Length: {len(body)}\r\n" in head
            assert gzip.decompress(body) == plain
            assert len(body) < 0.75 * len(plain)
        for line in ("Accept: */*", "Accept-Encoding: br", "Accept-Encoding: gzip;q=0.0, *"):
            head, body = await read_bytes(web.base, f"/static/{name}", cookie, line)
            assert "Content-Encoding" not in head
            assert body == plain
            assert "\r\nVary: Accept-Encoding\r\n" in head
            assert "\r\nCache-Control: private, max-age=86400\r\n" in head
