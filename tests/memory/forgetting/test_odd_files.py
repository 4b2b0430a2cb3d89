"""An odd file does not stop the erasure of others. The report shows it if it holds the text."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nanobot.memory.forget import Report
from nanobot.testing import FakeClock
from tests.files import files_with
from tests.memory.homes import GUEST, RealHome, living

SECRET = "the boat is Qopuvi"


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[RealHome]:
    async with living(tmp_path / "home", FakeClock()) as made:
        await made.say("telegram:1", SECRET)
        await made.learn(f"- Says that {SECRET}", "- Likes tea")
        yield made


async def erase(home: RealHome) -> Report:
    return await home.eraser.apply(SECRET)


def find_holding(folder: Path) -> list[str]:
    return sorted(path.name for path in files_with(folder, "Qopuvi") if not path.is_symlink())


def write(path: Path, text: str = f"- {SECRET}\n- Likes tea\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize("odd", ["memory", "USER.md/x", "memory/MEMORY.md/x", "memory/history/x/y"])
@pytest.mark.parametrize("whose", ["", f"{GUEST}/"])
async def test_a_file_or_folder_in_the_place_of_another(
    tmp_path: Path, odd: str, whose: str
) -> None:
    write(tmp_path / "home" / "workspace" / whose / odd)
    async with living(tmp_path / "home", FakeClock()) as home:
        await home.say("telegram:1", SECRET)
        report = await erase(home)
    assert report.data["complete"]
    assert find_holding(home.folder) == []


@pytest.mark.parametrize("name", ["USER.md", "memory/HISTORY.md"])
async def test_a_link_in_the_place_of_a_file(home: RealHome, name: str) -> None:
    elsewhere = write(home.folder.parent / "theirs.md")
    (home.folder / "workspace" / name).symlink_to(elsewhere)
    report = await erase(home)
    assert find_holding(home.folder) == []
    assert "files that links in my home point to" in report.text
    assert "Qopuvi" in elsewhere.read_text()


async def test_a_file_with_a_second_name_is_made_anew(home: RealHome) -> None:
    elsewhere = write(home.folder.parent / "theirs.md")
    os.link(elsewhere, home.folder / "workspace" / "USER.md")
    assert (await erase(home)).data["complete"]
    assert (home.folder / "workspace" / "USER.md").read_text() == "- [erased]\n- Likes tea\n"
    assert "Qopuvi" in elsewhere.read_text()


async def test_versions_that_cannot_be_rewritten_are_named(home: RealHome) -> None:
    objects = home.folder / "state" / "memory.git" / "objects"
    for path in [path for path in objects.rglob("*") if path.is_file()]:
        path.unlink()
    report = await erase(home)
    assert not report.data["complete"]
    assert "the memory versions:" in report.text


async def test_a_repository_of_ones_own_is_left_alone_and_named(home: RealHome) -> None:
    path = write(home.folder / "workspace" / "repo" / ".git" / "COMMIT_EDITMSG")
    report = await erase(home)
    assert "Qopuvi" in path.read_text()
    assert "your own git repositories" in report.text
