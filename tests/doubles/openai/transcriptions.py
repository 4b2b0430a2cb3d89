"""The `/audio/transcriptions` side of `FakeOpenAI`: forms with sound in, transcripts out.

It parses the form as strictly as the real one. The transcript is the sound itself if that is text,
so a test sends the text as bytes. Otherwise it is the number of bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.doubles.openai.rules import ApiError

TRANSCRIPTIONS = "/audio/transcriptions"
MOST_BYTES = 25 * 1024 * 1024
FORMATS = frozenset(("flac", "m4a", "mp3", "mp4", "mpeg", "mpga", "oga", "ogg", "wav", "webm"))

_BOUNDARY = re.compile(r"multipart/form-data;\s*boundary=\"?([^\";]+)\"?")
_PARAMETER = re.compile(r'\b(name|filename)="([^"\r\n]*)"')
_JSON = frozenset({"", "json", "verbose_json"})


@dataclass(frozen=True, slots=True)
class Recording:
    """A parsed request. `fields` are the text fields."""

    audio: bytes
    name: str
    mime: str
    fields: Mapping[str, str]

    @property
    def said(self) -> str:
        """The transcript."""
        try:
            return self.audio.decode()
        except UnicodeDecodeError:
            return f"({len(self.audio)} bytes)"


@dataclass(frozen=True, slots=True)
class _Part:
    name: str = ""
    filename: str = ""
    mime: str = ""
    content: bytes = b""


def recording(content_type: str, raw: bytes) -> Recording | ApiError:
    """Return the sound in a request, or the error of the real API."""
    boundary = _BOUNDARY.match(content_type)
    if boundary is None:
        return ApiError(400, "The request must be multipart/form-data.")
    parts = {part.name: part for part in _parts(raw, boundary[1].encode())}
    fields = {p.name: p.content.decode() for p in parts.values() if not p.filename}
    file = parts.get("file", _Part())
    if wrong := _wrong(fields, file):
        return ApiError(413 if len(file.content) > MOST_BYTES else 400, wrong)
    return Recording(file.content, file.filename, file.mime, fields)


def _wrong(fields: Mapping[str, str], file: _Part) -> str:
    checks = (
        (fields.get("model"), "you must provide a model parameter"),
        (file.filename, "'file' is a required property"),
        (fields.get("response_format", "") in _JSON, "This server answers in JSON only."),
        (file.filename.rpartition(".")[2] in FORMATS, f"Supported formats: {sorted(FORMATS)}"),
        (file.content, "Audio file is too short. Minimum audio length is 0.1 seconds."),
        (len(file.content) <= MOST_BYTES, f"Maximum size limit ({MOST_BYTES}) exceeded."),
    )
    return next((message for fine, message in checks if not fine), "")


def transcript(heard: Recording) -> bytes:
    """Return the answer."""
    return json.dumps({"text": heard.said}).encode()


def _parts(raw: bytes, boundary: bytes) -> Iterator[_Part]:
    pieces = (b"\r\n" + raw).split(b"\r\n--" + boundary)
    if len(pieces) < 2 or pieces[-1].strip() != b"--":
        return  # the form does not come to its end
    for piece in pieces[1:-1]:
        head, _, content = piece.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        headers = head.decode("latin-1")
        names = dict(_PARAMETER.findall(headers))
        mime = re.search(r"^Content-Type:\s*(\S+)", headers, re.MULTILINE | re.IGNORECASE)
        yield _Part(names.get("name", ""), names.get("filename", ""), mime[1] if mime else "",
                    content)  # fmt: skip
