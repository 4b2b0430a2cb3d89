"""Files that came with messages or out of tools."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from nanobot.agent.media import MAX_IMAGE_BYTES, MediaStore
from nanobot.errors import StorageError


def test_the_same_content_has_the_same_name_and_stands_once(tmp_path: Path) -> None:
    store = MediaStore(tmp_path / "media")
    name = store.put(b"a picture", "image/png")
    assert store.put_base64(base64.b64encode(b"a picture").decode(), "image/png") == name
    assert [file.name for file in (tmp_path / "media").iterdir()] == [name]
    assert (tmp_path / "media" / name).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "media").stat().st_mode & 0o777 == 0o700


def test_an_image_comes_back_as_it_was(tmp_path: Path) -> None:
    store = MediaStore(tmp_path)
    image = store.image(store.put(b"a picture", "image/png"))
    assert image is not None
    assert (base64.b64decode(image.data), image.mime) == (b"a picture", "image/png")


@pytest.mark.parametrize("name", ["../secret.png", "/etc/x.png", "gone.png", "a" * 32 + ".txt", ""])
def test_nothing_outside_the_folder_and_nothing_but_images_is_shown(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "secret.png").write_bytes(b"secret")
    (tmp_path / "media").mkdir()
    assert MediaStore(tmp_path / "media").image(name) is None


def test_an_image_that_is_too_big_or_gone_is_left_out(tmp_path: Path) -> None:
    store = MediaStore(tmp_path)
    name = store.put(b"x" * (MAX_IMAGE_BYTES + 1), "image/png")
    assert store.image(name) is None
    (tmp_path / name).unlink()
    assert store.image(name) is None


def test_a_disk_that_refuses_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "media").write_text("in the way")
    with pytest.raises(StorageError):
        MediaStore(tmp_path / "media").put(b"x", "image/png")
