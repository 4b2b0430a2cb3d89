"""An erasure searches every file of the home and reports unreadable ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanobot.memory.erase import Home, Kind, erase_report
from nanobot.memory.matcher import TextMatcher

SECRET = "Zarnetka Qopuvi"


def kinds(home: Home) -> dict[str, Kind]:
    return {held.shown: held.kind for held in home.occurrences(TextMatcher(SECRET))}


def write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{SECRET}\n")


def test_a_folder_that_cannot_be_read_is_named(closed_home: Path) -> None:
    (held,) = Home(closed_home.parent, closed_home).occurrences(TextMatcher(SECRET))
    report = erase_report((), (held,))
    assert not report.data["complete"]
    assert "- home: it cannot be read" in report.text


@pytest.mark.parametrize(("name", "kind"), [("media", "removed"), ("workspace", "text")])
def test_folders_of_its_own_on_another_disk_are_searched(
    tmp_path: Path, name: str, kind: Kind
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    write(tmp_path / "disk" / "notes.txt")
    (home / name).symlink_to(tmp_path / "disk")
    assert kinds(Home(home, home / "workspace")) == {f"{name}/notes.txt": kind}


def test_links_of_a_persons_own_are_not_followed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "workspace").mkdir(parents=True)
    write(tmp_path / "documents" / "notes.txt")
    (home / "documents").symlink_to(tmp_path / "documents")
    (home / "workspace" / "documents").symlink_to(tmp_path / "documents")
    assert kinds(Home(home, home / "workspace")) == {}


def test_a_workspace_elsewhere_is_searched_once(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    write(tmp_path / "elsewhere" / "notes.txt")
    (home / "workspace").symlink_to(tmp_path / "elsewhere")
    found = Home(home, tmp_path / "elsewhere").occurrences(TextMatcher(SECRET))
    assert [held.path for held in found] == [tmp_path / "elsewhere" / "notes.txt"]


def test_a_worker_of_a_team_looks_at_the_shared_folder_and_its_own_home(tmp_path: Path) -> None:
    shared, own = tmp_path / "shared", tmp_path / "home"
    kept = {
        shared / "workspace/notes.txt": "text",
        shared / "media/photo.jpg": "removed",
        own / "logs/nanobot.log": "log",
        own / "state/journal.db.moved-to-team": "removed",
    }
    for path in kept:
        write(path)
    home = Home(shared, shared / "workspace", own)
    assert {held.path: held.kind for held in home.occurrences(TextMatcher(SECRET))} == kept
    assert any("dumps" in place for place in home.beyond)
