"""Files of messages and tools."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from nanobot.agent.media import MAX_IMAGE_BYTES, MediaStore
from nanobot.errors import StorageError

PNG = b"\x89PNG\r\n\x1a\n and so on"


def test_the_same_content_has_the_same_name_and_stands_once(tmp_path: Path) -> None:
    store = MediaStore(tmp_path / "media")
    name = store.put(b"a picture", "image/png")
    assert store.put_base64(base64.b64encode(b"a picture").decode(), "image/png") == name
    assert [file.name for file in (tmp_path / "media").iterdir()] == [name]
    assert (tmp_path / "media" / name).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "media").stat().st_mode & 0o777 == 0o700


def test_an_image_comes_back_as_it_was_and_is_what_its_content_says(tmp_path: Path) -> None:
    store = MediaStore(tmp_path)
    image = store.image(store.put(PNG, "image/jpeg"))
    assert image is not None
    assert (base64.b64decode(image.data), image.mime) == (PNG, "image/png")


def test_what_is_no_image_never_reaches_a_prompt_as_one(tmp_path: Path) -> None:
    store = MediaStore(tmp_path)
    name = store.put(b"no picture", "image/png", "a.png")
    assert (name[32:], store.image(name)) == (".bin", None)
    (tmp_path / f"{'a' * 32}.png").write_bytes(b"from an older version")
    assert store.image(f"{'a' * 32}.png") is None


@pytest.mark.parametrize(
    ("mime", "name", "suffix"),
    [
        ("audio/ogg; codecs=opus", "", ".ogg"),
        ("application/pdf", "bill", ".pdf"),
        ("", "notes.MD", ".md"),
        ("application/octet-stream", "game.sav", ".sav"),
        ("", "no suffix", ".bin"),
        ("", "evil./../x", ".bin"),
        ("no/such", "long.suffixsuffix", ".bin"),
        ("", "fake.png", ".bin"),
        ("", "look.lnk", ".bin"),
        ("no/such", "page.URL", ".bin"),
        ("", "project.iml", ".bin"),
    ],
)
def test_a_kept_file_has_the_suffix_of_its_type_or_its_name(
    tmp_path: Path, mime: str, name: str, suffix: str
) -> None:
    assert MediaStore(tmp_path).put(b"x", mime, name)[32:] == suffix


@pytest.mark.parametrize(
    ("content", "name", "kind", "mime"),
    [
        (PNG, "x.txt", "image", "image/png"),
        (b"\xff\xd8\xff\xe0", "", "image", "image/jpeg"),
        (b"GIF89a", "a.gif", "document", "image/gif"),
        (b"OggS" + bytes(24) + b"OpusHead", "a.ogg", "voice", "audio/ogg"),
        (b"OggS" + bytes(24) + b"\x01vorbis", "a.ogg", "document", "audio/ogg"),
        (b"ID3\4\0", "song", "audio", "audio/mpeg"),
        (b"\xff\xfb\x90\x00", "song", "audio", "audio/mpeg"),
        (b"\xff\xfe\x00\x00", "utf16.txt", "document", "text/plain"),
        (b"\0\0\0\x20ftypM4A ", "a", "audio", "audio/mp4"),
        (b"\0\0\0\x20ftypisom", "a", "video", "video/mp4"),
        (b"\0\0\0\x20ftypqt  ", "a", "video", "video/quicktime"),
        (b"\0\0\0\x20ftypheic", "a", "document", "image/heic"),
        (b"%PDF-1.7", "a.png", "document", "application/pdf"),
        (b"<svg/>", "a.svg", "document", "image/svg+xml"),
        (b"\x1aE\xdf\xa3", "a.mkv", "document", "video/x-matroska"),
        (b"hello", "strange", "document", "application/octet-stream"),
    ],
)
def test_how_a_chat_shows_a_file_follows_from_what_it_holds(
    tmp_path: Path, content: bytes, name: str, kind: str, mime: str
) -> None:
    media = MediaStore(tmp_path).put_outgoing(content, name)
    assert (media.kind, media.mime) == (kind, mime)
    assert (media.name, media.size) == (name, len(content))
    assert (tmp_path / media.ref.removeprefix("media/")).read_bytes() == content


@pytest.mark.parametrize("name", ["../secret.png", "/etc/x.png", "gone.png", "a" * 32 + ".txt", ""])
def test_nothing_outside_the_folder_and_nothing_but_images_is_shown(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "secret.png").write_bytes(b"secret")
    (tmp_path / "media").mkdir()
    assert MediaStore(tmp_path / "media").image(name) is None


def test_an_image_that_is_too_big_or_gone_is_left_out(tmp_path: Path) -> None:
    store = MediaStore(tmp_path)
    name = store.put(PNG.ljust(MAX_IMAGE_BYTES + 1), "image/png")
    assert name.endswith(".png")
    assert store.image(name) is None
    (tmp_path / name).unlink()
    assert store.image(name) is None


def test_a_disk_that_refuses_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "media").write_text("in the way")
    with pytest.raises(StorageError):
        MediaStore(tmp_path / "media").put(b"x", "image/png")
