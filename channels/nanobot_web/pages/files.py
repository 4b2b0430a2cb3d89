"""Files both ways. Uploads go to a folder of the channel, and are stored with their message. Files
of conversations are downloads, except some types of pictures and sound.

Uploads cannot fill the disk: a rejected message's uploads are removed at once, all others after a
day. There is a limit for all of them, and a reserve of free space."""

from __future__ import annotations

import asyncio
import re
import secrets
import shutil
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from mimetypes import guess_type
from pathlib import Path
from urllib.parse import quote

from aiohttp import BodyPartReader, web
from msgspec import Struct

from nanobot.bus.events import Media
from nanobot.channel.documents import PICTURES, kind_of
from nanobot.clock import with_timeout
from nanobot.io import make_folder, replace_file, storage_errors
from nanobot.text import one_line
from nanobot_web.site import Call, PageError, Route

_MOST_FILES = 10
_MOST_BYTES = 20_000_000
_MOST_TEXT = 1_000_000
_MOST_FIELDS = 20
_UPLOAD_SECONDS = 900.0
_MOST_KEPT = 1_000_000_000  # bytes of all uploads together
_KEPT_FREE = 200_000_000  # bytes of the disk that stay free
UPLOADS = "uploads"
_KEPT_SECONDS = 86_400  # age at which an upload without a message is removed
_SHOWN = (*PICTURES, "audio/ogg", "audio/mpeg")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")


class Form(Struct, frozen=True):
    """The content of a form."""

    fields: Mapping[str, str]
    media: Sequence[Media]


@asynccontextmanager
async def receive_form(call: Call) -> AsyncIterator[Form]:
    """Read a form with files, which are on disk while inside, and stay there on success. Raises
    `PageError` and `StorageError`."""
    if not call.request.content_type.startswith("multipart/"):
        yield Form(call.form, ())
        return
    folder, media = call.site.host.state_folder, list[Media]()
    try:
        reading = _read(call, folder, media)
        fields = await with_timeout(call.site.host.clock, _UPLOAD_SECONDS, reading)
        yield Form(fields, media)
    except BaseException as error:
        remove_uploads(call, media)
        if isinstance(error, TimeoutError):
            raise PageError(408, "The upload timed out.") from None
        raise


async def _read(call: Call, folder: Path, media: list[Media]) -> Mapping[str, str]:
    """Return the fields of a form. Its files are stored and added to `media` one by one."""
    fields: dict[str, str] = {}
    now = call.site.host.clock.now().timestamp()
    try:
        async for part in await call.request.multipart():
            if not isinstance(part, BodyPartReader):
                raise PageError(400, "The form is invalid.")
            if part.filename is None:
                if len(fields) == _MOST_FIELDS:
                    raise PageError(413, "The form is too large.")
                fields[part.name or ""] = (await _read_part(part, _MOST_TEXT)).decode(
                    "utf-8", "replace"
                )
                continue
            if len(media) == _MOST_FILES:
                raise PageError(413, f"A message can have at most {_MOST_FILES} files.")
            data = await _read_part(part, _MOST_BYTES)
            if data:
                media.append(await asyncio.to_thread(_store, folder, part.filename, data, now))
    except ValueError as error:
        raise PageError(400, "The form is invalid.") from error
    return fields


async def _read_part(part: BodyPartReader, most: int) -> bytes:
    data = bytearray()
    while chunk := await part.read_chunk(65_536):
        data += chunk
        if len(data) > most:
            raise PageError(413, f"Files here can be at most {most / 1e6:.0f} MB.")
    return bytes(data)


def _store(folder: Path, name: str, data: bytes, now: float) -> Media:
    remove_old_uploads(folder, now)
    kept, folder = folder, folder / UPLOADS
    mime = guess_type(name)[0] or "application/octet-stream"
    ref = secrets.token_hex(16)
    with storage_errors(folder):
        used = sum(map(_size, folder.glob("*")))
        free = shutil.disk_usage(kept).free
        if used + len(data) > _MOST_KEPT or free - len(data) < _KEPT_FREE:
            raise PageError(507, "There is no space left for files.", hint="Try again tomorrow.")
        make_folder(folder)
        replace_file(folder / ref, data)
    return Media(ref, kind_of(mime), mime, one_line(Path(name).name), len(data))


def remove_uploads(call: Call, media: Iterable[Media]) -> None:
    """Remove uploads that no message has."""
    for one in media:
        (call.site.host.state_folder / UPLOADS / one.ref).unlink(missing_ok=True)


def remove_old_uploads(folder: Path, now: float) -> None:
    """Remove uploads older than a day. Blocks."""
    for path in (folder / UPLOADS).glob("*"):
        with suppress(OSError):  # another upload may have removed it
            if now - path.stat().st_mtime > _KEPT_SECONDS:
                path.unlink(missing_ok=True)


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0


async def send_file(call: Call) -> web.StreamResponse:
    """Send a file of a conversation that the visitor may see."""
    media = await _find_file(call)
    path = call.site.host.media_path(media)  # inside the media folder, and no link
    mime = guess_type(path.name)[0] or ""  # its suffix is by the content
    is_shown = mime in _SHOWN
    disposition = "inline" if is_shown else "attachment"
    name = quote(one_line(media.name or path.name))
    return web.FileResponse(
        path,
        headers={
            "Content-Type": mime if is_shown else "application/octet-stream",
            "Content-Disposition": f"{disposition}; filename*=UTF-8''{name}",
            "Content-Security-Policy": "default-src 'none'; sandbox",
        },
    )


async def _find_file(call: Call) -> Media:
    key, index = call.query("c"), call.number("i")
    await call.expect_visible(key)
    if extra := call.query("extra"):
        extras = await asyncio.to_thread(call.site.extras.of, key)
        files = next((one.media for one in extras if one.key == extra), ())
        found = next(iter(files[index:]), None)
    else:
        shown = await call.ask("conversations.show", key=key, first=call.number("seq"), limit=1)
        at = [one for one in shown["messages"] if one["seq"] == call.number("seq")]
        files = at[0].get("media", []) if at else []
        file = next(iter(files[index:]), {"file": ""})
        is_stored = _NAME.fullmatch(file["file"])
        found = Media(f"media/{file['file']}", name=file.get("name", "")) if is_stored else None
    if found is None:
        raise PageError(404, "There is no such file.")
    return found


ROUTES = {("GET", "/file"): Route(send_file, everyone=True)}
