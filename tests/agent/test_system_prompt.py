"""Parts of a workspace's system prompt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from nanobot.agent.prompt import SEPARATOR, PromptPart, ScopedSources
from nanobot.memory.documents import install_template, load_template
from nanobot.memory.recall import cut_at_line
from nanobot.memory.scopes import OWNER, Memories, Scopes
from nanobot.memory.store import MemoryStore
from nanobot.providers.port import estimate_tokens
from nanobot.security.paths import Root
from nanobot.skills.loader import SkillsLoader
from nanobot.testing import FakeClock
from nanobot.tooling.registry import ToolRegistry
from tests.doubles.state import MemoryState


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = Root(tmp_path / "workspace")
    root.create()
    install_template(root.path)
    return root.path


def sources_of(workspace: Path, budget: int = 128_000) -> tuple[ScopedSources, MemoryStore]:
    template = load_template()
    state = workspace.parent / "state"
    memories = Memories(Root(workspace), state, FakeClock(), template, budget=budget)
    skills = SkillsLoader(Root(workspace), MemoryState())
    scopes = Scopes(lambda _, __: False)
    sources = ScopedSources(memories, scopes, skills, ToolRegistry(), budget=budget)
    return sources, memories.of(OWNER).store


def text_of(workspace: Path, budget: int = 128_000) -> str:
    sources, _ = sources_of(workspace, budget)
    return SEPARATOR.join(part.text for part in parts_of(sources))


def parts_of(sources: ScopedSources) -> Sequence[PromptPart]:
    return sources.parts(OWNER, sources.memory_text(OWNER))


def test_the_identity_comes_first_and_says_where_the_workspace_is(workspace: Path) -> None:
    text = text_of(workspace)
    assert text.startswith("# nanobot")
    assert str(workspace) in text.split(SEPARATOR)[0]


def test_untouched_templates_take_no_room(workspace: Path) -> None:
    for name in ("SOUL.md", "USER.md", "TOOLS.md", "Long-term Memory"):
        assert f"## {name}" not in text_of(workspace)


def test_files_that_say_something_come_in_order(workspace: Path) -> None:
    (workspace / "USER.md").write_text("# User\n\n- Name: Ada\n")
    (workspace / "SOUL.md").write_text("# Soul\n\n- Dry humour\n")
    (workspace / "memory/MEMORY.md").write_text("# Memory\n\n- Has a cat\n")
    (workspace / "memory/2026-03-02.md").write_text("# 2026-03-02\n\n- 08:00 went out\n")
    text = text_of(workspace)
    assert "## SOUL.md\n\n# Soul\n\n- Dry humour" in text
    marks = ("# nanobot", "## SOUL.md", "## USER.md", "# Memory\n\n## Long-term Memory\n\n",
             "## Today's Notes\n\n")  # fmt: skip
    places = [text.index(mark) for mark in marks]
    assert places == sorted(places)


def test_a_file_beyond_its_budget_is_cut_at_a_line_and_says_where_the_rest_is(
    workspace: Path,
) -> None:
    lines = [f"- rule number {n} about something" for n in range(400)]
    (workspace / "AGENTS.md").write_text("\n".join(lines))
    text = text_of(workspace, budget=8 * 200)
    shown = next(part for part in text.split(SEPARATOR) if part.startswith("## AGENTS.md"))
    *kept, note = shown.removeprefix("## AGENTS.md\n\n").split("\n")
    assert kept == lines[: len(kept)]
    assert note == (
        f"[cut here to save room: read_file AGENTS.md start_line={len(kept) + 1} shows the rest]"
    )
    assert estimate_tokens("\n".join(kept)) <= 200


def test_memory_beyond_its_budget_says_where_the_rest_is(workspace: Path) -> None:
    (workspace / "memory/MEMORY.md").write_text("\n".join(f"- fact {n}" for n in range(2_000)))
    text = text_of(workspace, budget=4 * 300)
    assert "more facts are in memory/MEMORY.md: here are the most important" in text


def test_a_text_within_its_budget_is_not_touched() -> None:
    assert cut_at_line("a\nb", 100, "never seen") == "a\nb"


def test_a_file_that_cannot_be_read_is_left_out(workspace: Path) -> None:
    (workspace / "USER.md").unlink()
    (workspace / "USER.md").symlink_to("/etc/hostname")
    assert "## USER.md" not in text_of(workspace)


async def test_todays_notes_are_part_of_what_memory_says(workspace: Path) -> None:
    sources, store = sources_of(workspace)
    before = sources.memory_text(OWNER)
    await store.append_today("bought milk")
    assert "bought milk" not in (before or "")
    assert "bought milk" in (sources.memory_text(OWNER) or "")


async def test_what_memory_says_is_held_once_for_all_who_were_told_the_same(
    workspace: Path,
) -> None:
    sources, store = sources_of(workspace)
    await store.append_today("bought milk")
    told = sources.memory_text(OWNER)
    assert sources.memory_text(OWNER) is told
    (workspace / "USER.md").write_text("# User\n\n- Likes tea.\n")
    assert "Likes tea" in (sources.memory_text(OWNER) or "")


@pytest.mark.parametrize("path", ["AGENTS.md", "SOUL.md", "USER.md", "memory/MEMORY.md"])
def test_the_parts_are_made_once_until_a_file_changes(workspace: Path, path: str) -> None:
    sources, _ = sources_of(workspace)
    parts = parts_of(sources)
    assert parts_of(sources) is parts
    (workspace / path).write_text("# Notes\n\n- Likes tea.\n")
    assert "Likes tea" in SEPARATOR.join(part.text for part in parts_of(sources))
    (workspace / path).unlink()
    (workspace / path).symlink_to("/etc/hostname")
    assert "Likes tea" not in SEPARATOR.join(part.text for part in parts_of(sources))
