"""Completion of commands and of paths at the prompt."""

from __future__ import annotations

from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from nanobot_cli import completion
from nanobot_cli.completion import ChatCompleter, list_paths


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    for name in ("build/x", "src/deep/tea.md", "src/app.log", "node_modules/y", ".git/z"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).touch()
    for name in ("notes.txt", "my file.txt", ".hidden", "bad\nname"):
        (place / name).touch()
    (place / ".gitignore").write_text("# comment\n/build/\n*.log\n!kept\n\n")
    return place


async def complete(folder: Path, typed: str) -> list[str]:
    completer = ChatCompleter([("/help", "…"), ("/history", "…")], tuple, folder)
    return [
        typed[: len(typed) + one.start_position] + one.text
        async for one in completer.get_completions_async(Document(typed), CompleteEvent())
    ]


async def test_a_path_is_completed_anywhere_in_the_text_without_hidden_and_ignored_ones(
    folder: Path,
) -> None:
    assert await complete(folder, "see @") == [
        'see @"my file.txt"',
        "see @notes.txt",
        "see @src/",
        "see @src/deep/",
        "see @src/deep/tea.md",
    ]
    assert await complete(folder, "@TE") == ["@src/deep/tea.md", "@notes.txt"]
    assert await complete(folder, "@src/d") == ["@src/deep/", "@src/deep/tea.md"]
    assert await complete(folder, '@"my f') == ['@"my file.txt"']
    assert await complete(folder, "a@no") == await complete(folder, "@nothing") == []
    assert await complete(folder, "/he") == ["/help"]


async def test_a_path_outside_is_completed_in_its_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder))
    assert await complete(folder, "@../pro") == ["@../project/"]
    assert await complete(folder, f"@{folder}/no") == [f"@{folder}/notes.txt"]
    assert await complete(folder, "@~/no") == ["@~/notes.txt"]
    assert await complete(folder, "@/no/such/") == []


def test_tab_inserts_the_certain_part(folder: Path) -> None:
    completer = ChatCompleter([("/help", ""), ("/history", "")], tuple, folder)
    assert completer.common("see @not") == "es.txt"
    assert completer.common("@src/") == "deep/"
    assert completer.common("@te") == completer.common("/h") == completer.common('@"m') == ""
    assert completer.common("/hi") == "story"


def test_the_work_in_a_huge_folder_is_bounded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "loop").symlink_to(folder)
    monkeypatch.setattr(completion, "_MOST_FILES", 4)
    assert len(list_paths(folder)) <= 4
    monkeypatch.setattr(completion, "_SECONDS", -1.0)
    assert list_paths(folder) == []
    assert list_paths(folder / "none") == []
