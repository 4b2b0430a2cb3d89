"""What is asked of a proxy, and what it answers: HTTP, as far as that."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from nanobot.security.egress import EgressRefused, parse_url

_LONGEST_HEAD = 32 * 1024
_OURS = (b"proxy-", b"connection:", b"keep-alive:", b"host:", b"upgrade:")
"""Beginnings of header lines that are not passed on; the host is the one that was asked for."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Where somebody wants to go. `confirmation` tells them that they are there, `forwarded` is
    what they said to the other side so far."""

    host: str
    port: int
    confirmation: bytes
    forwarded: bytes


async def read_ask(reader: asyncio.StreamReader) -> Ask | bytes:
    """Read a request's head: what it asks for, or the answer to one that cannot be."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        return refusal(431, "this head is too long")
    if len(head) > _LONGEST_HEAD:
        return refusal(431, "this head is too long")
    try:
        return _asked(head)
    except EgressRefused as error:
        return refusal(403, str(error))
    except (ValueError, UnicodeDecodeError):
        return refusal(400, "this is a proxy for HTTP, and that was not a request to one")


def refusal(status: int, text: str) -> bytes:
    """A whole answer that says no."""
    body = f"nanobot: {text}\n".encode()
    head = f"HTTP/1.1 {status} Refused\r\nContent-Type: text/plain; charset=utf-8\r\n"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


def _asked(head: bytes) -> Ask:
    first, *headers = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    method, target, version = first.decode("ascii").split(" ")
    if not version.startswith("HTTP/1.") or not method.isalpha():
        raise ValueError(version)
    if method == "CONNECT":
        url = parse_url(f"https://{target}/")
        return Ask(url.host, url.port, b"HTTP/1.1 200 Connected\r\n\r\n", b"")
    url = parse_url(target)
    if url.scheme != "http":
        raise ValueError(target)
    lines = [f"{method} {url.target} HTTP/1.1".encode(), f"Host: {url.place}".encode()]
    lines += [line for line in headers if not line.lower().startswith(_OURS)]
    return Ask(url.host, url.port, b"", b"\r\n".join([*lines, b"Connection: close", b"", b""]))
