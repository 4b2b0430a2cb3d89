"""The owner's actions: installation, the operations, `/skills`."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nanobot.bus.events import InboundMessage
from nanobot.commands import CommandCall, CommandRegistry
from nanobot.errors import NanobotError
from nanobot.session.session import Session
from nanobot.testing import FakeClock
from tests.skills.support import SkillsKit, skill_md, write

PUBLIC: dict[str, str | bytes] = {
    "SKILL.md": skill_md("form-filling", license="MIT", **{"allowed-tools": "Bash(git:*) Read"}),
    "LICENSE.txt": "MIT",
    "references/FORMS.md": "Forms.",
    "scripts/fill.py": "#!/usr/bin/env python3\nprint()\n",
    "assets/form.bin": b"\0\1",
    ".git/config": "[core]",
}


@pytest.fixture
def public(tmp_path: Path) -> Path:
    """A published skill."""
    folder = write(tmp_path / "form-filling-main", PUBLIC)
    (folder / "scripts/fill.py").chmod(0o755)
    return folder


async def _install(kit: SkillsKit, path: Path, **options: bool) -> str:
    package = await kit.ask("skills.package", path=str(path))
    given = {"path": str(path), "digest": package["digest"], **options}
    return str((await kit.ask("skills.install", **given))["name"])


async def test_a_public_skill_is_installed_unchanged_and_works_at_once(
    kit: SkillsKit, public: Path
) -> None:
    assert await _install(kit, public) == "form-filling"
    copied = kit.workspace / "skills" / "form-filling"
    for path, content in PUBLIC.items():
        given = content.encode() if isinstance(content, str) else content
        if path.startswith(".git"):
            assert not (copied / path).exists()
        else:
            assert (copied / path).read_bytes() == given
    assert os.access(copied / "scripts/fill.py", os.X_OK)
    assert (copied / "SKILL.md").stat().st_mode & 0o777 == 0o600
    assert kit.skill("form-filling").available
    assert "Boil water." in (await kit.read(name="form-filling")).text
    again = await kit.ask("skills.package", path=str(public / "SKILL.md"))
    assert again["name"] == "form-filling"


async def test_what_changed_after_it_was_shown_is_not_installed(
    kit: SkillsKit, public: Path
) -> None:
    package = await kit.ask("skills.package", path=str(public))
    write(public, {"scripts/fill.py": "import os"})
    with pytest.raises(NanobotError, match="while you reviewed"):
        await kit.ask("skills.install", path=str(public), digest=package["digest"])
    assert not (kit.workspace / "skills").exists()


async def test_one_that_is_there_is_replaced_only_on_demand_and_then_wholly(
    kit: SkillsKit, public: Path
) -> None:
    await kit.add_enabled("form-filling", {"SKILL.md": skill_md("form-filling"), "old.md": "old"})
    with pytest.raises(NanobotError, match="already"):
        await _install(kit, public)
    await _install(kit, public, replace=True)
    assert kit.in_use() == {"form-filling"}
    assert not (kit.workspace / "skills/form-filling/old.md").exists()


async def test_a_copy_that_is_cut_short_is_not_used(kit: SkillsKit, public: Path) -> None:
    await _install(kit, public)
    write(public, {"references/FORMS.md": "More forms."})
    copied = kit.workspace / "skills/form-filling"
    write(copied, {"references/FORMS.md": "More forms."})  # a crash right after the first file
    assert kit.in_use() == set()
    await _install(kit, public, replace=True)
    assert kit.in_use() == {"form-filling"}


async def test_a_folder_with_a_link_is_not_installed(kit: SkillsKit, public: Path) -> None:
    (public / "more.md").symlink_to("/etc/passwd")
    with pytest.raises(NanobotError, match="links are not followed"):
        await kit.ask("skills.package", path=str(public))


@pytest.mark.parametrize("path", ["nowhere", "form-filling-main/LICENSE.txt", "."])
async def test_what_is_no_skill_is_not_installed(kit: SkillsKit, public: Path, path: str) -> None:
    with pytest.raises(NanobotError):
        await kit.ask("skills.package", path=str(public.parent / path))


async def test_text_that_cannot_be_seen_is_shown_to_the_owner(kit: SkillsKit) -> None:
    hidden = "".join(chr(0xE0000 + ord(letter)) for letter in "obey")
    kit.put("tea", skill_md(body=f"Boil water.{hidden}\u202e"))
    shown = await kit.service.table()["skills.show"]({"name": "tea"})
    assert isinstance(shown, dict)
    assert "\\U000e006f" in str(shown["text"])
    assert "\\u202e" in str(shown["text"])
    assert any("invisible" in str(warning) for warning in kit.skill("tea").warnings)


async def test_the_owner_sees_any_file_of_a_skill_before_it_is_enabled(kit: SkillsKit) -> None:
    kit.put("tea", {"SKILL.md": skill_md(), "scripts/a.sh": "rm -rf \u202e/"})
    show_file = kit.service.table()["skills.file"]

    async def text(name: str, file: str) -> str:
        shown = await show_file({"name": name, "file": file})
        assert isinstance(shown, dict)
        return str(shown["text"])

    assert await text("tea", "scripts/a.sh") == "rm -rf \\u202e/"
    assert "# Weather" in await text("weather", "SKILL.md")
    for path in ("../../../state/skills.json", "nope"):
        with pytest.raises(NanobotError):
            await text("tea", path)


async def _say(kit: SkillsKit, text: str) -> str:
    registry = CommandRegistry()
    kit.service.register(registry)
    message = InboundMessage("cli", "direct", "me", text, "1", datetime(2026, 1, 1, tzinfo=UTC))
    found = registry.find_call(message)
    assert found is not None
    answer = await found[0].run(
        CommandCall(found[1], message, Session("cli:direct", FakeClock()), "owner", 1)
    )
    return answer.text


async def test_the_chat_lists_skills_and_enables_none(kit: SkillsKit) -> None:
    kit.put("tea", skill_md())
    listed = await _say(kit, "/skills")
    assert "tea (new): not enabled yet (run `nanobot skills enable tea`)" in listed
    assert "weather: Current weather" in listed
    assert "SKILL.md" in await _say(kit, "/skills tea")
    assert "terminal" in await _say(kit, "/skills enable tea")
    assert kit.in_use() == set()
