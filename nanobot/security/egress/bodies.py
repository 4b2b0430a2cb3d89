"""A body within its limits: bytes are counted as they come and again as they are unpacked."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterable, Mapping

from nanobot.security.egress.values import MEGABYTE, EgressError

ENCODINGS = "gzip, deflate"
"""What is asked for: what the standard library unpacks in bounded steps."""


class Unpacker:
    """Unpacks one body of at most `limit` bytes."""

    def __init__(self, encoding: str, limit: int) -> None:
        if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise EgressError(f"it is packed in a way that was not asked for ({encoding[:40]})")
        self._encoding, self._limit = encoding, limit
        self._unpack = zlib.decompressobj(31) if encoding.endswith("gzip") else None
        self._taken = 0
        self._body = bytearray()

    def take(self, chunk: bytes) -> None:
        """Add what came. Raises `EgressError`."""
        self._taken += len(chunk)
        if self._taken > self._limit:
            raise too_large(self._limit)
        if self._encoding == "deflate" and self._unpack is None and chunk:
            # The standard says zlib; some servers send what zlib wraps, without its head.
            self._unpack = zlib.decompressobj(15 if chunk[0] & 0x0F == 8 else -15)
        if self._unpack is None:
            self._body += chunk
        elif not self._unpack.eof:
            try:
                self._body += self._unpack.decompress(chunk, self._limit - len(self._body) + 1)
            except zlib.error as error:
                raise EgressError("its compressed data is damaged") from error
        if len(self._body) > self._limit:
            raise too_large(self._limit)

    def finished(self) -> bytes:
        """The body. Raises `EgressError` where it breaks off."""
        if self._unpack is not None and not self._unpack.eof:
            raise EgressError("its compressed data breaks off")
        return bytes(self._body)


async def read_body(chunks: AsyncIterable[bytes], headers: Mapping[str, str], limit: int) -> bytes:
    """All of it, unpacked. Raises `EgressError` for more than `limit` bytes, before they are read
    where the other side says how many there are."""
    length = headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length[:20]) > limit:
        raise too_large(limit)
    unpacker = Unpacker(headers.get("content-encoding", "").strip().lower(), limit)
    async for chunk in chunks:
        unpacker.take(chunk)
    return unpacker.finished()


def too_large(limit: int) -> EgressError:
    """The error for what is longer than it may be."""
    return EgressError(f"it is larger than {limit / MEGABYTE:g} MB, the most that is read")
