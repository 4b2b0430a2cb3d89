"""Files sent by people. Each method returns the message id and accepts `where` like `say`."""

from __future__ import annotations

from collections.abc import Sequence

from tests.doubles.telegram.media import OGG, PNG, attachment
from tests.doubles.telegram.people import People, automatic_entities
from tests.doubles.telegram.values import Json, Upload, as_object


class PeopleWithFiles(People):
    """The part of `FakeTelegram` for a test, including files."""

    def photo(self, content: bytes = PNG, *, caption: str = "", **where: object) -> int:
        """Send a picture, in two sizes like the real server. `where` as for `say`."""
        return self._send("photo", Upload("photo.png", "image/png", content), caption, where)

    def document(
        self,
        content: bytes = b"A document.\n",
        *,
        name: str = "notes.txt",
        mime: str = "text/plain",
        caption: str = "",
        size: int | None = None,
        **where: object,
    ) -> int:
        """Send a file. With `size` (bytes) the server reports another size."""
        return self._send("document", Upload(name, mime, content), caption, where, size)

    def voice(self, content: bytes = OGG, *, size: int | None = None, **where: object) -> int:
        """Send a voice note."""
        return self._send("voice", Upload("voice.oga", "audio/ogg", content), "", where, size)

    def audio(self, content: bytes = b"ID3", *, caption: str = "", **where: object) -> int:
        """Send a piece of music."""
        return self._send("audio", Upload("song.mp3", "audio/mpeg", content), caption, where)

    def video(self, content: bytes = b"....ftyp", *, caption: str = "", **where: object) -> int:
        """Send a film."""
        return self._send("video", Upload("film.mp4", "video/mp4", content), caption, where)

    def sticker(
        self, content: bytes = b"RIFF....WEBP", *, emoji: str = "🙂", **where: object
    ) -> int:
        """Send a sticker that does not move."""
        file = self._world.store(Upload("sticker.webp", "image/webp", content))
        sticker = {**as_object(attachment("sticker", file)["sticker"]), "emoji": emoji}
        return self._place({"sticker": sticker}, where)

    def album(
        self,
        items: Sequence[tuple[str, bytes]],
        *,
        caption: str = "",
        **where: object,
    ) -> list[int]:
        """Send files together, each a kind ("photo", "video", "document", "audio") with its
        content. The caption is on the first. Each is an update, with the same `media_group_id`."""
        group = {"media_group_id": str(self._world.number() + 13_000_000_000)}
        sent = []
        for index, (kind, content) in enumerate(items):
            name, mime = _FILES[kind]
            text = caption if index == 0 else ""
            fields = {**where, **group}
            sent.append(self._send(kind, Upload(f"{index}-{name}", mime, content), text, fields))
        return sent

    def _send(
        self, kind: str, upload: Upload, caption: str, where: Json, size: int | None = None
    ) -> int:
        file = self._world.store(upload, size=size)
        small = None
        if kind == "photo":
            small = self._world.store(Upload("small.png", upload.mime, PNG))
        content = attachment(kind, file, small)
        if caption:
            content["caption"] = caption
            if entities := automatic_entities(caption):
                content["caption_entities"] = entities
        return self._place(content, where)


_FILES = {
    "photo": ("photo.png", "image/png"),
    "video": ("film.mp4", "video/mp4"),
    "document": ("notes.txt", "text/plain"),
    "audio": ("song.mp3", "audio/mpeg"),
}
