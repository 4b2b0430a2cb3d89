"""`nanobot skills …`, on a gateway and on the files."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import Nanobot, Terminal

SKILL = (
    "---\nname: tea\ndescription: How tea is made.\ntriggers: [tea]\n---\n\nBoil water.\x1b[2J\n"
)


@pytest.fixture
def tea(tmp_path: Path) -> Path:
    """Return a skill as published by others."""
    folder = tmp_path / "tea"
    (folder / "scripts").mkdir(parents=True)
    (folder / "SKILL.md").write_text(SKILL)
    (folder / "scripts" / "boil.sh").write_text("#!/bin/sh\n")
    return folder


def _status(here: Nanobot, name: str) -> object:
    skills = json.loads(here("skills", "list", "--json").stdout)["skills"]
    return next((one["status"] for one in skills if one["name"] == name), None)


def test_installing_shows_everything_and_asks_first(
    here: Nanobot, tea: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("n\ny\n"))
    refused = here("skills", "install", str(tea))
    assert refused.returncode == 1
    assert "How tea is made." in refused.stdout
    assert "scripts/boil.sh  10 bytes  script" in refused.stdout
    assert "  Boil water." in refused.stdout
    assert "\x1b" not in refused.stdout
    assert refused.stdout.endswith("Install tea? [y/N] Nothing was changed.\n")
    assert _status(here, "tea") is None
    installed = here("skills", "install", str(tea))
    assert installed.stdout.endswith("Install tea? [y/N] tea is enabled.\n")
    assert _status(here, "tea") == "enabled"


def test_a_changed_skill_is_off_until_it_is_enabled_again(
    here: Nanobot, home: Path, tea: Path
) -> None:
    assert here("skills", "install", str(tea), "--yes").returncode == 0
    script = home / "workspace" / "skills" / "tea" / "scripts" / "boil.sh"
    script.write_text("#!/bin/sh\nrm -rf /\n")
    assert "changed" in here("skills", "list").stdout
    shown = here("skills", "show", "tea").stdout
    assert "changes since you enabled it\n  changed: scripts/boil.sh\n" in shown
    assert here("skills", "show", "tea", "scripts/boil.sh").stdout == "#!/bin/sh\nrm -rf /\n"
    assert here("skills", "enable", "tea", "--yes").stdout == "tea is enabled.\n"
    assert here("skills", "disable", "tea").stdout == "tea is disabled.\n"
    assert _status(here, "tea") == "disabled"


def test_what_decides_future_behaviour_is_not_enabled_unseen_by_a_script(
    here: Nanobot, tea: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    for arguments in (["install", str(tea)], ["enable", "weather"]):
        done = here("skills", *arguments)
        assert done.returncode == 2
        assert "--yes" in done.stderr


def test_a_gateway_that_runs_is_told_what_was_shown(
    gateway: Any, here: Nanobot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    gateway.answers["skills.show"] = {"name": "tea", "digest": "d1", "text": "Boil."}
    gateway.answers["skills.enable"] = {
        "name": "tea", "status": "enabled", "note": "missing kettle",
    }  # fmt: skip
    done = here("skills", "enable", "tea", "--everyone")
    assert done.stdout.endswith("tea is enabled. Note: missing kettle.\n")
    assert gateway.asked[-1] == (
        "skills.enable", {"name": "tea", "digest": "d1", "everyone": True}
    )  # fmt: skip


@pytest.mark.parametrize("arguments", [[], ["show"], ["enable", " "], ["install"]])
def test_wrong_use_is_exit_code_2(here: Nanobot, arguments: list[str]) -> None:
    assert here("skills", *arguments).returncode == 2


def test_an_unknown_skill_is_exit_code_1(here: Nanobot) -> None:
    done = here("skills", "show", "nope")
    assert done.returncode == 1
    assert "Available skills: cron, memory," in done.stderr


def test_a_path_where_nothing_is_has_a_plain_error(here: Nanobot, tmp_path: Path) -> None:
    done = here("skills", "install", str(tmp_path / "nope"))
    assert done.returncode == 1
    assert f"error: {tmp_path / 'nope'} does not exist\n" in done.stderr


def test_an_address_has_to_be_https_and_public(here: Nanobot) -> None:
    plain = here("skills", "install", "http://example.org/tea.zip")
    assert (plain.returncode, "is not an https address" in plain.stderr) == (1, True)
    inside = here("skills", "install", "https://127.0.0.1/tea.zip")
    assert inside.returncode == 1
    assert "127.0.0.1" in inside.stderr


def test_an_archive_is_shown_with_its_hash_and_installed_if_it_is_the_one_that_is_meant(
    here: Nanobot, home: Path, tea: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = Path(shutil.make_archive(str(tea.parent / "tea"), "zip", tea.parent, tea.name))
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    other = here("skills", "install", str(archive), "--sha256", "0" * 64, "--yes")
    assert (other.returncode, digest in other.stderr) == (1, True)
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    done = here("skills", "install", str(archive), "--sha256", digest)
    assert f"sha256    {digest}\n" in done.stdout
    assert "Install tea? [y/N] tea is enabled." in done.stdout
    assert (home / "workspace/skills/tea/SKILL.md").exists()
    assert list((home / "state").glob("skill-*")) == []
    assert here("skills", "install", str(tea), "--sha256", digest, "--yes").returncode == 2


def test_a_newer_version_is_shown_against_the_one_that_is_there(
    here: Nanobot, home: Path, tea: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert here("skills", "install", str(tea), "--yes").returncode == 0
    main = tea / "SKILL.md"
    main.write_text(main.read_text() + "Then wait.\n")
    (tea / "more.md").write_text("more")
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    shown = here("skills", "install", str(tea), "--replace").stdout
    assert "changes from the installed version\n  added: more.md\n  changed: SKILL.md\n" in shown
    assert "  +Then wait.\n" in shown
