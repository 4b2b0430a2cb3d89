"""Pages made to hurt whoever fetches them: at `/hostile/<name>` of `FakeWeb`."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from functools import cache

from nanobot.testing.web_values import Asked, Handler, Line

_MEGABYTE = 1_000_000
_HTML = "Content-Type: text/html\r\n"
MANY_REDIRECTS = 10_000


def hostile() -> Mapping[str, Handler]:
    """The pages by name. One whose name ends in `/` answers for all that lies below."""
    return {
        "large": _large,
        "endless": _endless,
        "gzip-bomb": _bomb("gzip", 31),
        "deflate-bomb": _bomb("deflate", 15),
        "brotli": _fixed("Content-Encoding: br\r\n", b"\x0b\x02\x80hello\x03"),
        "broken-gzip": _fixed(
            "Content-Encoding: gzip\r\n", b"\x1f\x8b\x08\0\0\0\0\0\0\x03" + b"\xff" * 20
        ),
        "short-gzip": _fixed("Content-Encoding: gzip\r\n", _packed(31, 1)[:500]),
        "redirects/": _redirects,
        "to-loopback": _to("http://127.0.0.1/"),
        "to-metadata": _to("http://169.254.169.254/latest/meta-data/"),
        "to-mapped": _to("http://[::ffff:127.0.0.1]/"),
        "to-file": _to("file:///etc/passwd"),
        "to-nowhere": _to("http://:80/"),
        "wrong-charset": _fixed(
            "Content-Type: text/html; charset=utf-8\r\n", "<p>Grüße aus Köln</p>".encode("latin-1")
        ),
        "no-charset": _fixed("Content-Type: text/html; charset=klingon\r\n", b"<p>plain</p>"),
        "binary": _fixed(_HTML, bytes(range(256)) * 40),
        "zip": _fixed("Content-Type: application/zip\r\n", b"PK\x03\x04"),
        "silent": _silent,
        "slow": _slow,
        "huge-header": _huge_header,
        "many-headers": _many_headers,
        "truncated": _truncated,
        "no-http": _no_http,
    }


def _fixed(headers: str, body: bytes) -> Handler:
    async def handler(_: Asked, line: Line) -> None:
        head = f"HTTP/1.1 200 OK\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
        await line.send(head.encode() + body)

    return handler


def _to(target: str) -> Handler:
    async def handler(_: Asked, line: Line) -> None:
        await line.answer(b"", status=302, headers={"Location": target})

    return handler


async def _large(_: Asked, line: Line) -> None:
    await line.send(f"HTTP/1.1 200 OK\r\n{_HTML}Content-Length: {50 * _MEGABYTE}\r\n\r\n".encode())
    for _piece in range(50):
        await line.send(b"x" * _MEGABYTE)


async def _endless(_: Asked, line: Line) -> None:
    await line.send(f"HTTP/1.1 200 OK\r\n{_HTML}\r\n".encode())
    while True:
        await line.send(b"<p>and on</p>" * 5_000)


@cache
def _packed(window: int, megabytes: int) -> bytes:
    packer = zlib.compressobj(1, wbits=window)
    zeros = bytes(_MEGABYTE)
    return b"".join(packer.compress(zeros) for _ in range(megabytes)) + packer.flush()


def _bomb(encoding: str, window: int) -> Handler:
    async def handler(asked: Asked, line: Line) -> None:
        await _fixed(f"{_HTML}Content-Encoding: {encoding}\r\n", _packed(window, 50))(asked, line)

    return handler


async def _redirects(asked: Asked, line: Line) -> None:
    number = int(asked.path.rpartition("/")[2] or 0) + 1
    if number > MANY_REDIRECTS:
        await line.answer(b"the end")
    else:
        await line.answer(b"", status=302, headers={"Location": f"/hostile/redirects/{number}"})


async def _silent(_: Asked, line: Line) -> None:
    await line.hang()


async def _slow(_: Asked, line: Line) -> None:
    await line.send(f"HTTP/1.1 200 OK\r\n{_HTML}Content-Length: 1000\r\n\r\nx".encode())
    await line.hang()


async def _huge_header(_: Asked, line: Line) -> None:
    await line.send(b"HTTP/1.1 200 OK\r\nX-Large: " + b"x" * _MEGABYTE + b"\r\n\r\n")


async def _many_headers(_: Asked, line: Line) -> None:
    await line.send(b"HTTP/1.1 200 OK\r\n" + b"X-Many: x\r\n" * 100_000 + b"\r\n")


async def _truncated(_: Asked, line: Line) -> None:
    await line.send(f"HTTP/1.1 200 OK\r\n{_HTML}Content-Length: 1000\r\n\r\n<p>only".encode())


async def _no_http(_: Asked, line: Line) -> None:
    await line.send(b"220 mail.example.com ESMTP\r\n")
