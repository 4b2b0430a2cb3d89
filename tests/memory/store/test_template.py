"""The workspace of a new agent."""

from __future__ import annotations

from pathlib import Path

from nanobot.memory.documents import install_template, load_template

FILES = {"AGENTS.md", "SOUL.md", "USER.md", "TOOLS.md", "HEARTBEAT.md", "memory/MEMORY.md"}


def test_a_new_workspace_gets_every_file_and_folder(tmp_path: Path) -> None:
    workspace = tmp_path / "home" / "workspace"
    assert set(install_template(workspace)) == FILES
    assert {p.relative_to(workspace).as_posix() for p in workspace.rglob("*")} == FILES | {
        "memory",
        "skills",
    }
    assert workspace.stat().st_mode & 0o777 == 0o700


def test_a_file_that_exists_is_never_touched_and_what_is_missing_comes_back(tmp_path: Path) -> None:
    install_template(tmp_path)
    (tmp_path / "USER.md").write_text("Ana")
    (tmp_path / "SOUL.md").unlink()
    (tmp_path / "TOOLS.md").unlink()
    (tmp_path / "TOOLS.md").symlink_to(tmp_path / "elsewhere")
    assert install_template(tmp_path) == ("SOUL.md",)
    assert (tmp_path / "USER.md").read_text() == "Ana"
    assert not (tmp_path / "elsewhere").exists()


def test_the_template_of_memory_has_the_four_sections_each_with_a_placeholder() -> None:
    template = load_template()
    assert set(template) == FILES
    sections = template["memory/MEMORY.md"].split("\n## ")[1:]
    assert [section.split("\n")[0] for section in sections] == [
        "User Information",
        "Preferences",
        "Project Context",
        "Important Notes",
    ]
    for section in sections:
        placeholder = section.split("\n")[2]
        assert placeholder.startswith("(")
        assert placeholder.endswith(")")
